package envs

import (
	"image"

	"github.com/azserve/azserve/envs/canvas"
)

// boardCell is the side of a cell of a board game's picture.
const boardCell = 48

// cellCentre returns the middle of a cell of a board.
func cellCentre(row, col int) canvas.Point {
	return canvas.Point{X: (float64(col) + 0.5) * boardCell, Y: (float64(row) + 0.5) * boardCell}
}

// boardSize returns the size of a board's picture.
func boardSize(rows, cols int) (width, height int) { return cols * boardCell, rows * boardCell }

// FrameSize is of the board.
func (*TicTacToe) FrameSize() (width, height int) { return boardSize(3, 3) }

// Paint draws crosses for player 0 and noughts for player 1.
func (*TicTacToe) Paint(s *TicTacToeState, frame *image.RGBA) {
	w, h := boardSize(3, 3)
	for i := 1; i < 3; i++ {
		at := float64(i * boardCell)
		canvas.Line(frame, canvas.Point{X: at}, canvas.Point{X: at, Y: float64(h)}, 3, canvas.Grey)
		canvas.Line(frame, canvas.Point{Y: at}, canvas.Point{X: float64(w), Y: at}, 3, canvas.Grey)
	}
	for i := range 9 {
		c := cellCentre(i/3, i%3)
		const r = 0.32 * boardCell
		switch {
		case s.Stones[0]>>i&1 == 1:
			canvas.Line(frame, canvas.Point{X: c.X - r, Y: c.Y - r}, canvas.Point{X: c.X + r, Y: c.Y + r}, 6, canvas.Blue)
			canvas.Line(frame, canvas.Point{X: c.X - r, Y: c.Y + r}, canvas.Point{X: c.X + r, Y: c.Y - r}, 6, canvas.Blue)
		case s.Stones[1]>>i&1 == 1:
			canvas.Disc(frame, c, r+3, canvas.Red)
			canvas.Disc(frame, c, r-3, canvas.White)
		}
	}
}

// FrameSize is of the board.
func (g *ConnectFour) FrameSize() (width, height int) { return boardSize(g.rows, g.cols) }

// Paint draws yellow stones for player 0 and red ones for player 1.
func (g *ConnectFour) Paint(s *ConnectFourState, frame *image.RGBA) {
	canvas.Fill(frame, canvas.Blue)
	first, second := s.Mine, s.Theirs
	if s.Moves%2 == 1 {
		first, second = second, first
	}
	for row := range g.rows {
		for col := range g.cols {
			c, bit := canvas.White, uint(g.bottom[col])+uint(g.rows-1-row)
			switch {
			case first>>bit&1 == 1:
				c = canvas.Yellow
			case second>>bit&1 == 1:
				c = canvas.Red
			}
			canvas.Disc(frame, cellCentre(row, col), 0.4*boardCell, c)
		}
	}
}

// FrameSize is of the board.
func (g *Gomoku) FrameSize() (width, height int) { return boardSize(g.size, g.size) }

// Paint draws black stones for player 0 and white ones for player 1, on the crossings of the lines.
func (g *Gomoku) Paint(s *GomokuState, frame *image.RGBA) {
	canvas.Fill(frame, canvas.Wood)
	last := g.size - 1
	for i := range g.size {
		canvas.Line(frame, cellCentre(i, 0), cellCentre(i, last), 1.5, canvas.Black)
		canvas.Line(frame, cellCentre(0, i), cellCentre(last, i), 1.5, canvas.Black)
	}
	for i := range g.cells {
		at := cellCentre(i/g.size, i%g.size)
		for player, stones := range s.Stones {
			if stones[i>>6]>>(i&63)&1 == 0 {
				continue
			}
			canvas.Disc(frame, at, 0.44*boardCell, canvas.Black)
			if player == 1 {
				canvas.Disc(frame, at, 0.44*boardCell-1.5, canvas.White)
			}
		}
	}
}
