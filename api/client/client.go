// Package client talks to an azserve server from Go: searches, pools, models. What it returns are the types of the
// packages search and statestore, and errors for which errors.Is is the same as in process.
package client

import (
	"context"
	"crypto/tls"
	"time"

	pb "github.com/azserve/azserve/api/azserve/v1"
	"github.com/azserve/azserve/api/wire"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Config is a client's settings. The zero value of a field means its default.
type Config struct {
	Token      string      // what the server knows the client by
	TLS        *tls.Config // nil: plain text. With certificates in it for a server that wants one of its clients
	MaxMessage int         // bytes of a message in either direction; default 64 MiB
	NoRetry    bool        // don't repeat searches and evaluations that the server had no room for
	Dial       []grpc.DialOption
}

// Client is a connection to one server, or to several behind one name. Safe for concurrent use.
type Client struct {
	conn   *grpc.ClientConn
	envs   pb.EnvsClient
	search pb.SearchClient
	models pb.ModelsClient
	admin  pb.AdminClient
}

// policy spreads calls over the addresses of a name, and repeats what can be repeated: searches and evaluations are
// pure.
const policy = `{"loadBalancingConfig": [{"round_robin": {}}], "methodConfig": [{
	"name": [{"service": "azserve.v1.Search", "method": "Run"}, {"service": "azserve.v1.Models", "method": "Evaluate"},
		{"service": "azserve.v1.Envs", "method": "List"}, {"service": "azserve.v1.Envs", "method": "Describe"}],
	"retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "2s", "backoffMultiplier": 2,
		"retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// Dial makes a client of the server at host:port, or unix:PATH. It connects with the first call.
func Dial(target string, cfg Config) (*Client, error) {
	if cfg.MaxMessage == 0 {
		cfg.MaxMessage = 64 << 20
	}
	options := []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cfg.MaxMessage), grpc.MaxCallSendMsgSize(cfg.MaxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second, Backoff: backoff.Config{
			BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second,
		}}),
	}
	if cfg.TLS != nil {
		options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(cfg.TLS)))
	}
	if cfg.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(token{cfg.Token, cfg.TLS != nil}))
	}
	if !cfg.NoRetry {
		options = append(options, grpc.WithDefaultServiceConfig(policy))
	}
	conn, err := grpc.NewClient(target, append(options, cfg.Dial...)...)
	if err != nil {
		return nil, err
	}
	return &Client{
		conn: conn, envs: pb.NewEnvsClient(conn), search: pb.NewSearchClient(conn), models: pb.NewModelsClient(conn),
		admin: pb.NewAdminClient(conn),
	}, nil
}

// token is sent with every call.
type token struct {
	text   string
	secure bool
}

// GetRequestMetadata is the header.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + t.text}, nil
}

// RequireTransportSecurity lets a token go over plain text only where the caller asked for plain text.
func (t token) RequireTransportSecurity() bool { return t.secure }

// Close ends the connection. Pools that are still open are freed when their lease runs out.
func (c *Client) Close() error { return c.conn.Close() }

// Conn returns the connection, for the messages of azserve.v1 themselves.
func (c *Client) Conn() *grpc.ClientConn { return c.conn }

// Stats counts what the server does.
func (c *Client) Stats(ctx context.Context) (*pb.StatsResponse, error) {
	m, err := c.admin.Stats(ctx, &pb.StatsRequest{})
	return m, wire.FromStatus(err)
}

// Drain makes the server end in good order; grace 0 means its own.
func (c *Client) Drain(ctx context.Context, grace time.Duration) error {
	_, err := c.admin.Drain(ctx, &pb.DrainRequest{Grace: grace.Seconds()})
	return wire.FromStatus(err)
}

// Models lists the models.
func (c *Client) Models(ctx context.Context) ([]*pb.Model, error) {
	m, err := c.models.List(ctx, &pb.ListModelsRequest{})
	return m.GetModels(), wire.FromStatus(err)
}

// LoadModel sends the files of a model by their names, and returns the version that they have there.
func (c *Client) LoadModel(
	ctx context.Context, name, version string, files map[string][]byte, activate bool,
) (string, error) {
	req := &pb.LoadModelRequest{Name: name, Version: version, Activate: activate}
	for file, data := range files {
		req.Files = append(req.Files, &pb.File{Name: file, Data: data})
	}
	m, err := c.models.LoadModel(ctx, req)
	return m.GetVersion(), wire.FromStatus(err)
}

// Activate changes which version of a model searches use.
func (c *Client) Activate(ctx context.Context, name, version string) error {
	_, err := c.models.Activate(ctx, &pb.ActivateRequest{Name: name, Version: version})
	return wire.FromStatus(err)
}
