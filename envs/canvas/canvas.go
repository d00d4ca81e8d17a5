// Package canvas draws on pictures what environments need: boards, stones, lines and text. All lengths
// are in pixels, with the origin at the top left; what lies outside of the picture is cut off.
package canvas

import (
	"image"
	"image/color"
	"image/draw"
	"math"
	"strings"

	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// Colours of the built-in environments: they differ in lightness too, so that the colour-blind see them.
var (
	White  = color.RGBA{255, 255, 255, 255}
	Black  = color.RGBA{20, 20, 20, 255}
	Grey   = color.RGBA{150, 150, 150, 255}
	Pale   = color.RGBA{235, 235, 230, 255}
	Wood   = color.RGBA{222, 184, 120, 255}
	Blue   = color.RGBA{40, 90, 170, 255}
	Red    = color.RGBA{205, 60, 50, 255}
	Yellow = color.RGBA{245, 205, 70, 255}
	Green  = color.RGBA{70, 150, 90, 255}
)

// Point is a place in a picture.
type Point struct{ X, Y float64 }

// Fill paints a whole picture.
func Fill(dst *image.RGBA, c color.Color) {
	draw.Draw(dst, dst.Bounds(), image.NewUniform(c), image.Point{}, draw.Src)
}

// Rect fills a rectangle, given by two opposite corners.
func Rect(dst *image.RGBA, x0, y0, x1, y1 float64, c color.Color) {
	r := image.Rect(int(math.Round(x0)), int(math.Round(y0)), int(math.Round(x1)), int(math.Round(y1)))
	draw.Draw(dst, r, image.NewUniform(c), image.Point{}, draw.Over)
}

// Polygon fills a polygon, with smooth edges.
func Polygon(dst *image.RGBA, points []Point, c color.Color) {
	b := dst.Bounds()
	r := vector.NewRasterizer(b.Dx(), b.Dy())
	for i, p := range points {
		if i == 0 {
			r.MoveTo(float32(p.X), float32(p.Y))
		} else {
			r.LineTo(float32(p.X), float32(p.Y))
		}
	}
	r.ClosePath()
	r.Draw(dst, b, image.NewUniform(c), image.Point{})
}

// Line draws a straight line of a width, with flat ends.
func Line(dst *image.RGBA, a, b Point, width float64, c color.Color) {
	dx, dy := b.X-a.X, b.Y-a.Y
	n := math.Hypot(dx, dy)
	if n == 0 {
		return
	}
	dx, dy = dx/n*width/2, dy/n*width/2
	Polygon(dst, []Point{
		{a.X - dy, a.Y + dx}, {b.X - dy, b.Y + dx}, {b.X + dy, b.Y - dx}, {a.X + dy, a.Y - dx},
	}, c)
}

// Disc fills a circle.
func Disc(dst *image.RGBA, centre Point, radius float64, c color.Color) {
	const corners = 48
	points := make([]Point, corners)
	for i := range points {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / corners)
		points[i] = Point{centre.X + radius*cos, centre.Y + radius*sin}
	}
	Polygon(dst, points, c)
}

// Size of a letter.
const (
	LetterWidth  = 7
	LetterHeight = 13
)

// Text writes lines of text, the first one's top left at (x, y).
func Text(dst *image.RGBA, x, y int, text string, c color.Color) {
	d := font.Drawer{Dst: dst, Src: image.NewUniform(c), Face: basicfont.Face7x13}
	for i, line := range strings.Split(text, "\n") {
		d.Dot = fixed.P(x, y+i*LetterHeight+basicfont.Face7x13.Ascent)
		d.DrawString(line)
	}
}

// RGB writes the picture's bytes of red, green and blue by rows; out has room for all of them.
func RGB(src *image.RGBA, out []uint8) {
	b := src.Bounds()
	for y := range b.Dy() {
		row := src.Pix[y*src.Stride : y*src.Stride+4*b.Dx()]
		to := out[y*b.Dx()*3 : (y+1)*b.Dx()*3]
		for x := range b.Dx() {
			copy(to[3*x:3*x+3], row[4*x:4*x+3])
		}
	}
}
