package server

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/azserve/azserve/api/wire"
	"github.com/azserve/azserve/errcode"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/status"
)

// metrics is what Prometheus is told.
type metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	queue    prometheus.Histogram
	methods  map[string]bool // that there are: callers can't make up labels

	answered, failed, refused atomic.Int64 // calls
}

func newMetrics(s *Server) *metrics {
	buckets := prometheus.ExponentialBuckets(1e-4, 3, 13)
	m := &metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "azserve_calls_total", Help: "Calls that ended, by gRPC's code.",
		}, []string{"method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "azserve_call_seconds", Help: "Time from a call to its answer.", Buckets: buckets,
		}, []string{"method"}),
		queue: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "azserve_queue_seconds", Help: "Time that searches and evaluations waited for their turn.",
			Buckets: buckets,
		}),
	}
	m.registry.MustRegister(m.calls, m.seconds, m.queue, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &collector{s})
	return m
}

// finish counts a call that ended.
func (m *metrics) finish(method string, err error, took time.Duration) {
	m.calls.WithLabelValues(method, status.Code(wire.Status(err)).String()).Inc()
	m.seconds.WithLabelValues(method).Observe(took.Seconds())
	m.count(err)
}

// refuse counts a call that was turned away at the door. Methods that don't exist share a name.
func (m *metrics) refuse(method string, err error) {
	if !m.methods[method] {
		method = "other"
	}
	m.calls.WithLabelValues(method, status.Code(wire.Status(err)).String()).Inc()
	m.count(err)
}

func (m *metrics) count(err error) {
	switch {
	case err == nil, wire.From(err).Code == errcode.Cancelled:
		m.answered.Add(1)
	case wire.From(err).Code == errcode.Overloaded:
		m.refused.Add(1)
	default:
		m.failed.Add(1)
	}
}

// collector reads the server's own counts when Prometheus asks.
type collector struct{ s *Server }

var (
	descRunning  = prometheus.NewDesc("azserve_running", "Searches and evaluations that are being worked on.", nil, nil)
	descQueued   = prometheus.NewDesc("azserve_queued", "Searches and evaluations that wait for their turn.", nil, nil)
	descPools    = prometheus.NewDesc("azserve_pools", "Open pools.", nil, nil)
	descExpired  = prometheus.NewDesc("azserve_pools_expired_total", "Pools whose lease ran out.", nil, nil)
	descSessions = prometheus.NewDesc("azserve_sessions", "Open search sessions.", nil, nil)
	descStates   = prometheus.NewDesc("azserve_states", "States in memory.", nil, nil)
	descSims     = prometheus.NewDesc("azserve_simulations_total", "Simulations done.", nil, nil)
	descDrain    = prometheus.NewDesc("azserve_draining", "1 while the server drains.", nil, nil)
	descRows     = prometheus.NewDesc("azserve_evaluator_rows_total", "States evaluated.", []string{"model"}, nil)
	descBatches  = prometheus.NewDesc("azserve_evaluator_batches_total", "Batches evaluated.", []string{"model"}, nil)
	descFailed   = prometheus.NewDesc("azserve_evaluator_failed_total", "Batches without an answer.",
		[]string{"model"}, nil)
	descAttached = prometheus.NewDesc("azserve_evaluators", "Attached evaluators.", []string{"model"}, nil)
	descReady    = prometheus.NewDesc("azserve_model_ready", "1 if the model can evaluate now.", []string{"model"}, nil)
)

// Describe lists what there is.
func (*collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descRunning, descQueued, descPools, descExpired, descSessions, descStates, descSims, descDrain, descRows,
		descBatches, descFailed, descAttached, descReady,
	} {
		ch <- d
	}
}

// Collect reads it.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	st := c.s.stats()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(descRunning, float64(st.Running))
	gauge(descQueued, float64(st.Queued))
	gauge(descPools, float64(st.Pools))
	count(descExpired, float64(st.Expired))
	gauge(descSessions, float64(st.Sessions))
	gauge(descStates, float64(st.States))
	count(descSims, float64(st.Simulations))
	gauge(descDrain, oneIf(st.Draining))
	for _, m := range c.s.registry.list() {
		count(descRows, float64(m.Rows), m.Name)
		count(descBatches, float64(m.Batches), m.Name)
		count(descFailed, float64(m.Failed), m.Name)
		gauge(descAttached, float64(m.Evaluators), m.Name)
		gauge(descReady, oneIf(m.Ready), m.Name)
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Metrics is the page for Prometheus.
func (s *Server) Metrics() http.Handler {
	return promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{})
}
