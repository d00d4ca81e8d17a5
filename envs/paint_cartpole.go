package envs

import (
	"image"
	"math"

	"github.com/azserve/azserve/envs/canvas"
)

// The picture of CartPole, in pixels.
const (
	cpWidth  = 600
	cpHeight = 400
	cpTrack  = 300 // height of the track below the top
	cpScale  = cpWidth / (2 * cpMaxX)
)

// FrameSize is Gymnasium's.
func (*CartPole) FrameSize() (width, height int) { return cpWidth, cpHeight }

// Paint draws the cart on its track and the pole, 1 m long.
func (*CartPole) Paint(s *CartPoleState, frame *image.RGBA) {
	x, y := cpWidth/2+s.Physics[0]*cpScale, float64(cpTrack)
	canvas.Line(frame, canvas.Point{Y: y}, canvas.Point{X: cpWidth, Y: y}, 1.5, canvas.Grey)
	canvas.Rect(frame, x-25, y-15, x+25, y+15, canvas.Black)
	sin, cos := math.Sincos(s.Physics[2])
	const length = 2 * cpLength * cpScale
	pivot := canvas.Point{X: x, Y: y - 8}
	canvas.Line(frame, pivot, canvas.Point{X: x + length*sin, Y: pivot.Y - length*cos}, 10, canvas.Wood)
	canvas.Disc(frame, pivot, 5, canvas.Blue)
}
