package envs

import (
	"fmt"
	"math"

	"github.com/azserve/azserve/internal/rng"
)

// CartPole is Gymnasium's CartPole-v1 (Barto, Sutton and Anderson 1983), bit for bit: the same
// order of float64 operations, NumPy's generator for the start, and the C library's sine and cosine, in a
// C kernel over the batch (cartpole_libm.go). With math="go", and in a build without cgo, the
// sine and cosine are Go's: 100 times in 1,000 steps a number then differs in its last bits, and an
// observation drifts by up to 1e-6.
type CartPole struct {
	limit       int32 // steps
	suttonBarto bool
	libm        bool // else Go's sine and cosine
	low, high   float64
	keywords    string
}

// CartPoleConfig holds the keywords.
type CartPoleConfig struct {
	MaxEpisodeSteps int     `json:"max_episode_steps" default:"500" doc:"time limit in steps, 1 to 1000000"`
	SuttonBarto     bool    `json:"sutton_barto_reward" default:"false" doc:"reward 0 a step and -1 at the fall, in place of 1 a step"`
	Low             float64 `json:"low" default:"-0.05" doc:"least of each number at the start"`
	High            float64 `json:"high" default:"0.05" doc:"bound of each number at the start, not reached; at most 1"`
	Math            string  `json:"math" default:"\"libm\"" doc:"sine and cosine: \"libm\" (Gymnasium's bits) or \"go\" (no cgo call)"`
}

// CartPoleState is one cart with its random generator, which goes on over episodes as Gymnasium's
// does.
type CartPoleState struct {
	Physics              [4]float64 // position (m), velocity (m/s), angle (rad), angular velocity (rad/s)
	RNG                  rng.PCG64
	Steps                int32 // since the start of the episode
	Terminated, Timedout bool
}

const (
	cpGravity   = 9.8
	cpMassPole  = 0.1
	cpTotalMass = 0.1 + 1.0
	cpLength    = 0.5 // half the length of the pole
	cpForce     = 10.0
	cpTau       = 0.02 // seconds a step
	cpMaxX      = 2.4
	cpPoleMassL = cpMassPole * cpLength
)

// cpMaxTheta is 12 degrees, rounded after each operation as Python does: a constant expression would
// be rounded once only.
var cpMaxTheta = float64(12*2*float64(math.Pi)) / 360

// NewCartPole checks the keywords and returns the rules.
func NewCartPole(c CartPoleConfig) (*CartPole, error) {
	const id = "CartPole-v1"
	if err := inRange(id, "max_episode_steps", c.MaxEpisodeSteps, 1, 1_000_000); err != nil {
		return nil, err
	}
	if !(c.Low >= -1 && c.Low <= c.High && c.High <= 1) {
		return nil, fmt.Errorf("%w: %s: low=%g high=%g; want -1 <= low <= high <= 1", ErrKeyword, id, c.Low, c.High)
	}
	g := &CartPole{limit: int32(c.MaxEpisodeSteps), suttonBarto: c.SuttonBarto, low: c.Low, high: c.High}
	switch c.Math {
	case "go":
	case "libm":
		g.libm, c.Math = true, libmName
	default:
		return nil, fmt.Errorf("%w: %s: math=%q; want \"libm\" or \"go\"", ErrKeyword, id, c.Math)
	}
	g.keywords = fmt.Sprintf("max_episode_steps=%d sutton_barto_reward=%v low=%g high=%g math=%s",
		c.MaxEpisodeSteps, c.SuttonBarto, c.Low, c.High, c.Math)
	return g, nil
}

// Spec describes the environment.
func (g *CartPole) Spec() Spec {
	theta := float64(float32(2 * cpMaxTheta))
	inf := math.Inf(1)
	s := Spec{
		ID: "CartPole-v1", Version: 1, Keywords: g.keywords,
		Obs: []ArraySpec{{
			Name: "obs", DType: Float32, Shape: []int{4},
			Low:  []float64{-2 * cpMaxX, -inf, -theta, -inf},
			High: []float64{2 * cpMaxX, inf, theta, inf},
		}},
		NumActions: 2, NumPlayers: 1, AllLegal: true, RewardHigh: 1, MaxEpisodeSteps: int(g.limit),
	}
	if g.suttonBarto {
		s.RewardLow, s.RewardHigh = -1, 0
	}
	return s
}

// Reset seeds the generator as gymnasium's reset(seed=seed) does.
func (g *CartPole) Reset(s *CartPoleState, seed uint64) {
	*s = CartPoleState{RNG: rng.NewPCG64(seed)}
	g.Restart(s)
}

// Restart starts the next episode from the state's own generator.
func (g *CartPole) Restart(s *CartPoleState) {
	for i := range s.Physics {
		s.Physics[i] = s.RNG.Uniform(g.low, g.high)
	}
	s.Steps, s.Terminated, s.Timedout = 0, false, false
}

// Step pushes the cart left (0) or right (1) for one time step.
func (g *CartPole) Step(s *CartPoleState, action int32) Outcome {
	var out [1]Outcome
	g.StepBatch([]*CartPoleState{s}, []int32{action}, out[:])
	return out[0]
}

// cpChunk is how many carts are stepped together.
const cpChunk = 128

// carts are the numbers of a chunk, kept apart so that a compiler can take several at once.
type carts struct{ x, v, theta, omega, force, sin, cos [cpChunk]float64 }

// StepBatch steps many carts, a chunk at a time.
func (g *CartPole) StepBatch(states []*CartPoleState, actions []int32, out []Outcome) {
	var c carts
	for lo := 0; lo < len(states); lo += cpChunk {
		part := states[lo:min(lo+cpChunk, len(states))]
		for i, s := range part {
			p := &s.Physics
			c.x[i], c.v[i], c.theta[i], c.omega[i] = p[0], p[1], p[2], p[3]
			c.force[i] = cpForce * float64(2*actions[lo+i]-1)
		}
		if g.libm {
			libmStep(&c, len(part))
		} else {
			goStep(&c, len(part))
		}
		for i, s := range part {
			out[lo+i] = g.moved(s, &c, i)
		}
	}
}

// goStep moves the first n carts by one time step. Conversions round each product by itself, as Python
// does: without them the compiler may fuse a product into a sum on some processors.
func goStep(c *carts, n int) {
	for i := range n {
		sin, cos := math.Sincos(c.theta[i])
		omega := c.omega[i]
		temp := (c.force[i] + float64(float64(cpPoleMassL*float64(omega*omega))*sin)) / cpTotalMass
		thetaAcc := (float64(cpGravity*sin) - float64(cos*temp)) /
			float64(cpLength*(4.0/3.0-float64(cpMassPole*float64(cos*cos))/cpTotalMass))
		xAcc := temp - float64(float64(cpPoleMassL*thetaAcc)*cos)/cpTotalMass
		c.x[i] += float64(cpTau * c.v[i])
		c.v[i] += float64(cpTau * xAcc)
		c.theta[i] += float64(cpTau * omega)
		c.omega[i] += float64(cpTau * thetaAcc)
	}
}

// moved takes over the new numbers of cart i, unless its episode had ended.
func (g *CartPole) moved(s *CartPoleState, c *carts, i int) Outcome {
	if s.Terminated || s.Timedout {
		return Outcome{Terminated: s.Terminated, Truncated: s.Timedout}
	}
	x, theta := c.x[i], c.theta[i]
	s.Physics = [4]float64{x, c.v[i], theta, c.omega[i]}
	s.Steps++
	s.Terminated = x < -cpMaxX || x > cpMaxX || theta < -cpMaxTheta || theta > cpMaxTheta
	s.Timedout = s.Steps >= g.limit
	return Outcome{g.reward(s.Terminated), s.Terminated, s.Timedout}
}

func (g *CartPole) reward(fell bool) float32 {
	switch {
	case !g.suttonBarto:
		return 1
	case fell:
		return -1
	}
	return 0
}

// Observe writes the four numbers as float32.
func (g *CartPole) Observe(s *CartPoleState, row Row) {
	obs := row.Float32(0)
	for i, v := range s.Physics {
		obs[i] = float32(v)
	}
}

// ObserveBatch does the same for many carts.
func (g *CartPole) ObserveBatch(states []*CartPoleState, obs []Array, row0 int) {
	out := obs[0].F32[4*row0 : 4*(row0+len(states))]
	for i, s := range states {
		o, p := (*[4]float32)(out[4*i:]), &s.Physics
		o[0], o[1], o[2], o[3] = float32(p[0]), float32(p[1]), float32(p[2]), float32(p[3])
	}
}

// Mask allows both actions until the end.
func (g *CartPole) Mask(s *CartPoleState, legal []bool) {
	open := !s.Terminated && !s.Timedout
	legal[0], legal[1] = open, open
}

// Text shows the cart, the pole's lean and the numbers.
func (g *CartPole) Text(s *CartPoleState) string {
	const width = 49
	track := []byte(fmt.Sprintf("%*s", width, ""))
	at := int((s.Physics[0] + cpMaxX) / (2 * cpMaxX) * (width - 1))
	pole := byte('|')
	if s.Physics[2] > 0.02 {
		pole = '/'
	} else if s.Physics[2] < -0.02 {
		pole = '\\'
	}
	track[max(0, min(width-1, at))] = pole
	return fmt.Sprintf("%s\nstep %d: x %+.3f m, v %+.3f m/s, angle %+.2f deg, %+.3f rad/s\n", track,
		s.Steps, s.Physics[0], s.Physics[1], s.Physics[2]*180/math.Pi, s.Physics[3])
}

// ActionName names the push.
func (g *CartPole) ActionName(_ *CartPoleState, a int32) string { return [2]string{"left", "right"}[a] }

// Validate refuses numbers that aren't finite.
func (g *CartPole) Validate(s *CartPoleState) error {
	for i, v := range s.Physics {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("number %d of the physics is %g", i, v)
		}
	}
	return nil
}
