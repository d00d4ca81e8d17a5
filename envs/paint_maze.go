package envs

import (
	"image"

	"github.com/azserve/azserve/envs/canvas"
)

// mazeSide is about how many pixels the longer side of a maze's picture has.
const mazeSide = 480

// cell returns the side of a cell's picture.
func (g *Maze) cell() int { return mazeSide / max(g.c.Rows, g.c.Cols) }

// FrameSize is of whole cells.
func (g *Maze) FrameSize() (width, height int) { return g.c.Cols * g.cell(), g.c.Rows * g.cell() }

// Paint draws black walls, the agent as a blue disc and the goal as a green square.
func (g *Maze) Paint(s *MazeState, frame *image.RGBA) {
	side := float64(g.cell())
	square := func(r, c int) (x0, y0, x1, y1 float64) {
		x0, y0 = float64(c)*side, float64(r)*side
		return x0, y0, x0 + side, y0 + side
	}
	canvas.Fill(frame, canvas.Pale)
	for r := range g.c.Rows {
		for c := range g.c.Cols {
			if s.Walls[r]>>c&1 == 1 {
				x0, y0, x1, y1 := square(r, c)
				canvas.Rect(frame, x0, y0, x1, y1, canvas.Black)
			}
		}
	}
	x0, y0, x1, y1 := square(int(s.GoalRow), int(s.GoalCol))
	canvas.Rect(frame, x0, y0, x1, y1, canvas.Green)
	centre := canvas.Point{X: (float64(s.Col) + 0.5) * side, Y: (float64(s.Row) + 0.5) * side}
	canvas.Disc(frame, centre, 0.35*side, canvas.Blue)
}
