package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/azserve/azserve/"

// layers are the folders, lowest first. A file imports from its own folder and from those before it.
var layers = []string{
	"internal", "envs/canvas", "envs", "envs/envstest", "statestore", "pool", "replay", "evaluator", "evaluator/evaluatortest", "search/tree", "search", "search/inspect",
	"evaluator/onnxfile", "evaluator/gorgonia", "evaluator/onnx", "evaluator/named", "evaluator/remote", "errcode", "selfplay",
	"analysis", "api/azserve/v1", "api/wire", "api/client", "api/server", "cli", "cmd", "deploy", "bench", "python/native", "python/libazserve",
}

// never lists exceptions to the order: folders that may not import others although those are lower.
var never = map[string][]string{
	"evaluator/gorgonia": {"search"}, "evaluator/onnx": {"search", "evaluator/gorgonia"}, "evaluator/named": {"search"},
	"evaluator/remote": {"search", "evaluator/gorgonia", "evaluator/onnx"}, "python/native": {"api"},
}

// thirdParty lists what each folder may import from elsewhere; "" is every folder.
var thirdParty = map[string][]string{
	"envs/canvas": {"golang.org/x/image"},
	"pool":        {"github.com/panjf2000/ants/v2", "golang.org/x/sys"},
	"evaluator/gorgonia": {
		"gorgonia.org/gorgonia", "gorgonia.org/tensor", "gonum.org/v1/gonum", "github.com/chewxy/hm",
		"github.com/ebitengine/purego",
	},
	"bench":              {"google.golang.org/grpc"},
	"evaluator/onnxfile": {"google.golang.org/protobuf/encoding/protowire"},
	"evaluator/onnx":     {"github.com/yalue/onnxruntime_go"},
	"api/azserve/v1":     {"google.golang.org/grpc", "google.golang.org/protobuf"},
	"api/wire":           {"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc"},
	"api/client":         {"google.golang.org/grpc"},
	"api/server": {
		"google.golang.org/grpc", "github.com/prometheus/client_golang", "golang.org/x/time", "go.opentelemetry.io/otel",
		"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc",
	},
	"cli": {
		"github.com/spf13/cobra", "github.com/spf13/pflag", "gopkg.in/yaml.v3", "golang.org/x/term",
		"github.com/schollz/progressbar/v3", "go.opentelemetry.io/otel",
	},
	"envs/envstest":           {"github.com/stretchr/testify"},
	"evaluator/evaluatortest": {"github.com/stretchr/testify"},
	"internal/golden":         {"github.com/stretchr/testify"},
}

// cgo lists the files that may import "C", beside python/native.
var cgo = []string{"envs/cartpole_libm.go"}

// source is one Go file that isn't a test.
type source struct {
	path, folder string
	file         *ast.File
}

func sources(t *testing.T) (out []source) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "runs") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		out = append(out, source{filepath.ToSlash(rel), filepath.ToSlash(filepath.Dir(rel)), f})
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, out)
	return out
}

// layerOf returns the place of a folder in the list, by its longest matching prefix.
func layerOf(folder string) int {
	best, at := -1, -1
	for i, l := range layers {
		if (folder == l || strings.HasPrefix(folder, l+"/")) && len(l) > best {
			best, at = len(l), i
		}
	}
	return at
}

func imports(f *ast.File) (out []string) {
	for _, i := range f.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		out = append(out, path)
	}
	return out
}

func TestLayers(t *testing.T) {
	for _, s := range sources(t) {
		own := layerOf(s.folder)
		require.GreaterOrEqual(t, own, 0, "%s: the folder isn't in the list of layers", s.path)
		for _, path := range imports(s.file) {
			target, ours := strings.CutPrefix(path, module)
			if !ours {
				continue
			}
			require.LessOrEqual(t, layerOf(target), own, "%s imports %s, which stands above it", s.path, target)
			for _, banned := range never[layers[own]] {
				require.False(t, target == banned || strings.HasPrefix(target, banned+"/"), "%s imports %s",
					s.path, target)
			}
		}
	}
}

func TestThirdParty(t *testing.T) {
	for _, s := range sources(t) {
		for _, path := range imports(s.file) {
			first, _, _ := strings.Cut(path, "/")
			if !strings.Contains(first, ".") || strings.HasPrefix(path, module) {
				continue
			}
			allowed := thirdParty[layers[layerOf(s.folder)]]
			allowed = append(slices.Clone(allowed), thirdParty[s.folder]...)
			ok := slices.ContainsFunc(allowed, func(a string) bool { return path == a || strings.HasPrefix(path, a+"/") })
			require.True(t, ok, "%s imports %s, which %s may not", s.path, path, s.folder)
		}
	}
}

func TestCgo(t *testing.T) {
	for _, s := range sources(t) {
		if slices.Contains(imports(s.file), "C") {
			require.True(t, s.folder == "python/native" || slices.Contains(cgo, s.path), "%s imports C", s.path)
		}
	}
}

// TestTreeIsPure: the state machine has no goroutine, channel, clock, I/O or random numbers.
func TestTreeIsPure(t *testing.T) {
	allowed := []string{"fmt", "math", "math/bits", "slices", module + "internal/vecmath"}
	for _, s := range sources(t) {
		if s.folder != "search/tree" {
			continue
		}
		for _, path := range imports(s.file) {
			require.Contains(t, allowed, path, s.path)
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt, *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
				require.Fail(t, "concurrency in the state machine", s.path)
			}
			return true
		})
	}
}

// TestSize: a file is one concept, a function fits on a page.
func TestSize(t *testing.T) {
	for _, s := range sources(t) {
		data, err := os.ReadFile(filepath.Join("../..", s.path))
		require.NoError(t, err)
		require.LessOrEqual(t, strings.Count(string(data), "\n"), 600, "%s is too long", s.path)
		for i, line := range strings.Split(string(data), "\n") {
			if strings.Contains(line, "`json:") {
				continue // struct tags can't be broken
			}
			require.LessOrEqual(t, len(strings.ReplaceAll(line, "\t", "  ")), 120, "%s:%d is too wide", s.path, i+1)
		}
	}
}

// TestNoPanic: errors are returned; only what re-raises a panic, and MustRegister, may panic.
func TestNoPanic(t *testing.T) {
	may := []string{"envs/arena.go", "envs/registry.go", "pool/workers.go"}
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if id, ok := c.Fun.(*ast.Ident); ok && id.Name == "panic" {
				require.Contains(t, may, s.path, "panics")
			}
			return true
		})
	}
}
