package envs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Errors of the registry.
var (
	ErrUnknownEnv = errors.New("envs: unknown environment")
	ErrRegistered = errors.New("envs: environment already registered")
)

// registry holds the environments that come with azserve, one line each.
var registry = map[string]Entry{
	"BinPack-v0":     NewEntry("Pack boxes into a container, as jumanji's BinPack does.", NewBinPack),
	"CartPole-v1":    NewEntry("Balance a pole on a cart, as Gymnasium's does.", NewCartPole),
	"ConnectFour-v0": NewEntry("Drop stones to connect four, on any small board.", NewConnectFour),
	"Gomoku-v0":      NewEntry("Five in a row, on a square board.", NewGomoku),
	"Maze-v0":        NewEntry("Walk through a maze to its goal.", NewMaze),
	"Pig-v0":         NewEntry("The dice game of two: roll again, or hold.", NewPig),
	"Table-v0":       NewEntry("A game or decision process given as tables.", NewTable),
	"TicTacToe-v0":   NewEntry("Noughts and crosses: the annotated example.", NewTicTacToe),
}

// added holds what programs add with Register.
var added = struct {
	sync.RWMutex // guards entries
	entries      map[string]Entry
}{entries: map[string]Entry{}}

// Entry is one environment of the registry.
type Entry struct {
	Doc      string // one line
	Keywords []Keyword
	define   func(id string, kw Keywords) (*Env, error)
}

// Keyword documents one setting of an environment.
type Keyword struct {
	Name    string
	Kind    string // Go's name of the type
	Default string // as JSON; empty if the keyword must be given
	Doc     string // unit and range
	File    bool   // a text is the path of a file that is read (tag file:"true")
}

// NewEntry makes a registry entry from a constructor of rules. Its argument C is a struct of
// keywords; each field has the tags `json` (the keyword), `default` (as JSON) and `doc`.
func NewEntry[C, S any, R Rules[S]](doc string, build func(C) (R, error)) Entry {
	keywords := keywordDocs(reflect.TypeFor[C]())
	return Entry{doc, keywords, func(id string, kw Keywords) (*Env, error) {
		var c C
		if err := defaultsOf(keywords).decode(id, &c); err != nil {
			return nil, err
		}
		if err := kw.decode(id, &c); err != nil {
			return nil, err
		}
		r, err := build(c)
		if err != nil {
			return nil, err
		}
		return Define[S](r)
	}}
}

func keywordDocs(t reflect.Type) []Keyword {
	out := make([]Keyword, t.NumField())
	for i, name := range keywordNames(t) {
		f := t.Field(i)
		out[i] = Keyword{name, f.Type.String(), f.Tag.Get("default"), f.Tag.Get("doc"), f.Tag.Get("file") == "true"}
	}
	return out
}

// ReadsFile returns the name of a keyword that would make the environment read a file of this machine, "" if there is
// none: servers refuse that from strangers.
func (e *Entry) ReadsFile(kw Keywords) string {
	for _, k := range e.Keywords {
		var path string
		if k.File && json.Unmarshal(kw[k.Name], &path) == nil && path != "" {
			return k.Name
		}
	}
	return ""
}

func defaultsOf(keywords []Keyword) Keywords {
	out := Keywords{}
	for _, k := range keywords {
		if k.Default != "" {
			out[k.Name] = json.RawMessage(k.Default)
		}
	}
	return out
}

// Register adds an environment under an id of its own. Call it from main or a test, before the id
// is used; safe for concurrent use.
func Register(id string, e Entry) error {
	added.Lock()
	defer added.Unlock()
	if _, ok := registry[id]; ok || added.entries[id].define != nil {
		return fmt.Errorf("%w: %q", ErrRegistered, id)
	}
	added.entries[id] = e
	return nil
}

// MustRegister is Register for an init function: it panics where Register fails.
func MustRegister(id string, e Entry) {
	if err := Register(id, e); err != nil {
		panic(err)
	}
}

// Make builds the environment registered under an id, with keywords (nil for the defaults).
func Make(id string, kw Keywords) (*Env, error) {
	e, err := Lookup(id)
	if err != nil {
		return nil, err
	}
	env, err := e.define(id, kw)
	if err == nil {
		env.keywords = kw
	}
	return env, err
}

// Lookup returns the entry registered under an id.
func Lookup(id string) (Entry, error) {
	added.RLock()
	defer added.RUnlock()
	if e, ok := registry[id]; ok {
		return e, nil
	}
	if e, ok := added.entries[id]; ok {
		return e, nil
	}
	return Entry{}, fmt.Errorf("%w %q; known: %s", ErrUnknownEnv, id, strings.Join(ids(), ", "))
}

// IDs lists the registered environments in sorted order.
func IDs() []string {
	added.RLock()
	defer added.RUnlock()
	return ids()
}

func ids() []string {
	all := slices.Collect(maps.Keys(registry))
	return slices.Sorted(slices.Values(slices.AppendSeq(all, maps.Keys(added.entries))))
}
