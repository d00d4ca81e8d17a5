package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/azserve/azserve/api/client"
	"github.com/azserve/azserve/api/server"
	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/errcode"
	"github.com/stretchr/testify/require"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// sign writes a certificate and its key.
func (a *authority) sign(t *testing.T, folder, name string, until time.Time) (cert, key string) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &k.PublicKey, a.key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	cert, key = filepath.Join(folder, name+".pem"), filepath.Join(folder, name+".key")
	write(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	return cert, key
}

func write(t *testing.T, path string, data []byte) {
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

// TestMutualTLS: only clients with a certificate of ours get in, and a new certificate is taken without a restart.
func TestMutualTLS(t *testing.T) {
	folder := t.TempDir()
	ca, other := newAuthority(t), newAuthority(t)
	caFile := filepath.Join(folder, "ca.pem")
	write(t, caFile, ca.pem)
	cert, key := ca.sign(t, folder, "server", time.Now().Add(time.Hour))
	config, err := server.LoadTLS(cert, key, caFile)
	require.NoError(t, err)
	_, at := start(t, server.Config{TLS: config})

	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca.pem))
	call := func(tlsConfig *tls.Config) error {
		_, err := dial(t, at, client.Config{TLS: tlsConfig, NoRetry: true}).Models(t.Context())
		return err
	}
	with := func(a *authority, name string, until time.Time) *tls.Config {
		c, k := a.sign(t, folder, name, until)
		pair, err := tls.LoadX509KeyPair(c, k)
		require.NoError(t, err)
		return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
	}
	require.NoError(t, call(with(ca, "learner", time.Now().Add(time.Hour))))
	for name, bad := range map[string]*tls.Config{
		"no certificate": {RootCAs: roots},
		"another CA":     with(other, "stranger", time.Now().Add(time.Hour)),
		"expired":        with(ca, "old", time.Now().Add(-time.Minute)),
		"unknown server": {},
	} {
		require.Equal(t, errcode.Unavailable, wire.From(call(bad)).Code, name)
	}
	require.Error(t, call(nil), "plain text")

	good := with(ca, "learner2", time.Now().Add(time.Hour))
	fresh, freshKey := ca.sign(t, folder, "fresh", time.Now().Add(time.Hour))
	later := time.Now().Add(2 * time.Second)
	for from, to := range map[string]string{fresh: cert, freshKey: key} {
		require.NoError(t, os.Rename(from, to))
		require.NoError(t, os.Chtimes(to, later, later))
	}
	var seen string
	good.VerifyConnection = func(s tls.ConnectionState) error {
		seen = s.PeerCertificates[0].Subject.CommonName
		return nil
	}
	require.NoError(t, call(good))
	require.Equal(t, "fresh", seen)
	_, err = server.LoadTLS(cert, caFile, "")
	require.Error(t, err)
}

// TestListen: a dead server's socket is replaced, a live one's and other files are not.
func TestListen(t *testing.T) {
	path := unixPath(t)
	first, err := server.Listen("unix:" + path)
	require.NoError(t, err)
	_, err = server.Listen("unix:" + path)
	require.ErrorContains(t, err, "another server listens there")
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, first.Close())
	second, err := server.Listen("unix:" + path)
	require.NoError(t, err)
	require.NoError(t, second.Close())
	write(t, path, []byte("precious"))
	_, err = server.Listen("unix:" + path)
	require.ErrorContains(t, err, "no socket")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "precious", string(data))
}
