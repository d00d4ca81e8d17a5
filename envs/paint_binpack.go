package envs

import (
	"image"
	"image/color"
	"math"

	"github.com/azserve/azserve/envs/canvas"
)

// The picture of BinPack: the container from its upper front corner, in parallel perspective.
const (
	binWidth  = 640
	binHeight = 480
	binMargin = 24
)

// FrameSize is fixed.
func (*BinPack) FrameSize() (width, height int) { return binWidth, binHeight }

// binView maps the container's lengths to pixels.
type binView struct{ scale, x, y float64 }

// binSlope is how far the floor's axes run sideways for each step down.
const binSlope = 0.5

func newBinView(c [3]int32) binView {
	cos := math.Sqrt(1 - binSlope*binSlope)
	wide := (float64(c[0]) + float64(c[1])) * cos
	high := (float64(c[0])+float64(c[1]))*binSlope + float64(c[2])
	v := binView{scale: min((binWidth-2*binMargin)/wide, (binHeight-2*binMargin)/high)}
	v.x = binWidth/2 + (float64(c[1])-float64(c[0]))*cos*v.scale/2
	v.y = binHeight/2 - high*v.scale/2 + float64(c[2])*v.scale
	return v
}

// at returns where a corner is: x runs to the lower right, y to the lower left, z up.
func (v *binView) at(x, y, z int32) canvas.Point {
	cos := math.Sqrt(1 - binSlope*binSlope)
	return canvas.Point{
		X: v.x + (float64(x)-float64(y))*cos*v.scale,
		Y: v.y + ((float64(x)+float64(y))*binSlope-float64(z))*v.scale,
	}
}

// binColours are the items' colours in turn.
var binColours = []color.RGBA{
	canvas.Blue, canvas.Red, canvas.Green, canvas.Yellow, canvas.Wood, canvas.Grey,
	{120, 80, 160, 255}, {60, 160, 170, 255},
}

// Paint draws the edges of the container and the items, the ones behind first.
func (g *BinPack) Paint(s *BinPackState, frame *image.RGBA) {
	v := newBinView(s.problem.container)
	c := s.problem.container
	for _, end := range [][3]int32{{c[0], 0, 0}, {0, c[1], 0}, {0, 0, c[2]}} {
		canvas.Line(frame, v.at(0, 0, 0), v.at(end[0], end[1], end[2]), 1.5, canvas.Grey)
	}
	for _, i := range paintOrder(s) {
		item := binBox{lo: s.spots[i]}
		for k := range 3 {
			item.hi[k] = item.lo[k] + s.problem.items[i][k]
		}
		v.paint(frame, &item, binColours[i%len(binColours)])
	}
	v.outline(frame, c)
}

// outline draws the container's edges that are in front.
func (v *binView) outline(frame *image.RGBA, c [3]int32) {
	ring := []canvas.Point{
		v.at(c[0], 0, 0), v.at(c[0], c[1], 0), v.at(0, c[1], 0), v.at(0, c[1], c[2]), v.at(0, 0, c[2]), v.at(c[0], 0, c[2]),
	}
	for i, p := range ring {
		canvas.Line(frame, p, ring[(i+1)%len(ring)], 1.5, canvas.Grey)
	}
}

// paint draws the three sides of a box that are seen.
func (v *binView) paint(frame *image.RGBA, b *binBox, c color.RGBA) {
	lo, hi := b.lo, b.hi
	face := func(shade float64, points ...canvas.Point) {
		dark := func(x uint8) uint8 { return uint8(float64(x) * shade) }
		canvas.Polygon(frame, points, color.RGBA{dark(c.R), dark(c.G), dark(c.B), 255})
		for i, p := range points {
			canvas.Line(frame, p, points[(i+1)%len(points)], 1, canvas.Black)
		}
	}
	face(1, v.at(lo[0], lo[1], hi[2]), v.at(hi[0], lo[1], hi[2]), v.at(hi[0], hi[1], hi[2]), v.at(lo[0], hi[1], hi[2]))
	face(0.8, v.at(hi[0], lo[1], lo[2]), v.at(hi[0], hi[1], lo[2]), v.at(hi[0], hi[1], hi[2]), v.at(hi[0], lo[1], hi[2]))
	face(0.65, v.at(lo[0], hi[1], lo[2]), v.at(hi[0], hi[1], lo[2]), v.at(hi[0], hi[1], hi[2]), v.at(lo[0], hi[1], hi[2]))
}

// paintOrder lists the placed items so that none is painted before one that is behind it.
func paintOrder(s *BinPackState) (order []int) {
	var left []int
	for i, at := range s.spots {
		if at[0] != notPlaced {
			left = append(left, i)
		}
	}
	behind := func(i, j int) bool { // i ends before j begins, on some axis
		for k := range 3 {
			if s.spots[i][k]+s.problem.items[i][k] <= s.spots[j][k] {
				return true
			}
		}
		return false
	}
	for len(left) > 0 {
		next := 0
		for n, i := range left {
			free := true
			for _, j := range left {
				free = free && (i == j || behind(i, j) || !behind(j, i))
			}
			if free {
				next = n
				break
			}
		}
		order = append(order, left[next])
		left = append(left[:next], left[next+1:]...)
	}
	return order
}
