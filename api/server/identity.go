package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// role is what a client may do.
type role uint8

const (
	roleClient    role = 1 << iota // search, pools, evaluate
	roleEvaluator                  // attach
	roleAdmin                      // load and activate models, drain
	roleAll       = roleClient | roleEvaluator | roleAdmin
)

var roleNames = map[string]role{"client": roleClient, "evaluator": roleEvaluator, "admin": roleAll}

// identity is who calls.
type identity struct {
	name  string // of its token or certificate, else of its connection
	named bool   // it has one of these: pools belong to the name, not to whoever knows their number
	roles role
	limit *rate.Limiter // of calls; nil: none
}

type identityKey struct{}

func identityOf(ctx context.Context) *identity {
	if id, ok := ctx.Value(identityKey{}).(*identity); ok {
		return id
	}
	return &identity{name: "unknown"}
}

// peerIdentity is who calls where there are no tokens: the name in a verified certificate, else the connection.
func peerIdentity(ctx context.Context) *identity {
	id := &identity{name: connectionOf(ctx), roles: roleAll}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			id.name, id.named = info.State.VerifiedChains[0][0].Subject.CommonName, true
		}
	}
	return id
}

// Tokens are the clients that a file names, one a line: NAME ROLES TOKEN [RATE]. ROLES is client, evaluator or
// admin, or several of them with commas; TOKEN is the secret, or sha256: and the hash of it in hexadecimal; RATE is
// how many calls a second the client may make. The file is read again when it has changed. Safe for concurrent use.
type Tokens struct {
	path string

	mu      sync.Mutex // guards everything below
	clients []tokenClient
	looked  time.Time // at the file
	changed time.Time // the file
	size    int64
}

type tokenClient struct {
	hash [sha256.Size]byte
	identity
}

// LoadTokens reads a file of tokens.
func LoadTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	if err := t.read(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Tokens) read() error {
	info, err := os.Stat(t.path)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(t.path)
	if err != nil {
		return err
	}
	clients, err := parseTokens(data)
	if err != nil {
		return fmt.Errorf("%s: %w", t.path, err)
	}
	for i := range clients { // a client that stays keeps what is left of its rate
		for _, old := range t.clients {
			if old.name == clients[i].name && old.limit != nil && clients[i].limit != nil &&
				old.limit.Limit() == clients[i].limit.Limit() {
				clients[i].limit = old.limit
			}
		}
	}
	t.clients, t.changed, t.size = clients, info.ModTime(), info.Size()
	return nil
}

func parseTokens(data []byte) (out []tokenClient, err error) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 3 || len(fields) > 4 {
			return nil, fmt.Errorf("line %d has %d words; want NAME ROLES TOKEN [RATE]", n, len(fields))
		}
		c := tokenClient{identity: identity{name: fields[0], named: true}}
		for name := range strings.SplitSeq(fields[1], ",") {
			if roleNames[name] == 0 {
				return nil, fmt.Errorf("line %d: role %q; want client, evaluator or admin", n, name)
			}
			c.roles |= roleNames[name]
		}
		if c.hash, err = tokenHash(fields[2]); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(fields) == 4 {
			r, err := strconv.ParseFloat(fields[3], 64)
			if err != nil || !(r > 0) {
				return nil, fmt.Errorf("line %d: rate %q; want calls a second, above 0", n, fields[3])
			}
			c.limit = rate.NewLimiter(rate.Limit(r), max(1, int(r)))
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no tokens; want lines NAME ROLES TOKEN [RATE]")
	}
	return out, lines.Err()
}

func tokenHash(text string) (hash [sha256.Size]byte, err error) {
	digits, ok := strings.CutPrefix(text, "sha256:")
	if !ok {
		if len(text) < 16 {
			return hash, fmt.Errorf("a token of %d characters; want at least 16", len(text))
		}
		return sha256.Sum256([]byte(text)), nil
	}
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) != sha256.Size {
		return hash, fmt.Errorf("sha256: with %d characters; want 64 hexadecimal ones", len(digits))
	}
	return [sha256.Size]byte(b), nil
}

// find returns who has a token, nil if nobody has. It takes equally long whatever the token has in common with one
// that is known. problem is of the file, if it can't be read again; what was known still holds.
func (t *Tokens) find(token string) (found *identity, problem error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.Sub(t.looked) > time.Second {
		t.looked = now
		if info, err := os.Stat(t.path); err != nil || !info.ModTime().Equal(t.changed) || info.Size() != t.size {
			problem = t.read()
		}
	}
	hash := sha256.Sum256([]byte(token))
	for i := range t.clients {
		if subtle.ConstantTimeCompare(hash[:], t.clients[i].hash[:]) == 1 {
			found = &t.clients[i].identity
		}
	}
	return found, problem
}

// LoadTLS makes a server's TLS settings from PEM files: TLS 1.3, and with clientCA only for clients with a
// certificate of it. The files are read again for new connections when they have changed.
func LoadTLS(cert, key, clientCA string) (*tls.Config, error) {
	l := &tlsFiles{cert: cert, key: key, clientCA: clientCA}
	if _, err := l.config(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return l.config()
		},
	}, nil
}

type tlsFiles struct {
	cert, key, clientCA string

	mu      sync.Mutex // guards everything below
	made    *tls.Config
	changed time.Time
}

// config returns the settings by the files as they are now; by what they were if they can't be read now.
func (l *tlsFiles) config() (*tls.Config, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	newest, err := l.newest()
	if l.made != nil && (err != nil || newest.Equal(l.changed)) {
		return l.made, nil
	}
	made, err := l.read()
	if err != nil {
		if l.made != nil {
			return l.made, nil
		}
		return nil, err
	}
	l.made, l.changed = made, newest
	return made, nil
}

func (l *tlsFiles) newest() (newest time.Time, err error) {
	for _, path := range []string{l.cert, l.key, l.clientCA} {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return newest, err
		}
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest, nil
}

func (l *tlsFiles) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(l.cert, l.key)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	if l.clientCA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(l.clientCA)
	if err != nil {
		return nil, err
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificates; want PEM", l.clientCA)
	}
	return c, nil
}
