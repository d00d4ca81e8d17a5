package inspect

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Sizes of the drawing, in pixels.
const (
	boxWidth  = 92
	boxHeight = 46
	gapX      = 10
	gapY      = 44
	margin    = 12
)

// place is a node with where it is drawn.
type place struct {
	n        *Node
	x, y     int
	children []*place
}

// WriteSVG draws the tree from top to bottom: the thicker a line, the more visits; green is good for the
// player who chose the action, red bad.
func (n *Node) WriteSVG(w io.Writer) error {
	next, deepest := margin, 0
	root := layout(n, margin, &next, &deepest)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" `+
		`font-size="11" text-anchor="middle">`+"\n", next+margin, deepest+boxHeight+margin)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	drawLines(&b, root, math.Max(1, float64(n.Visits)))
	drawBoxes(&b, root)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// layout puts leaves side by side and every other node above the middle of its children.
func layout(n *Node, y int, next, deepest *int) *place {
	p := &place{n: n, y: y}
	*deepest = max(*deepest, y)
	for _, c := range n.Children {
		p.children = append(p.children, layout(c, y+boxHeight+gapY, next, deepest))
	}
	if len(p.children) == 0 {
		p.x = *next
		*next += boxWidth + gapX
		return p
	}
	p.x = (p.children[0].x + p.children[len(p.children)-1].x) / 2
	return p
}

func drawLines(b *strings.Builder, p *place, most float64) {
	x, y := p.x+boxWidth/2, p.y+boxHeight
	for _, c := range p.children {
		cx, cy := c.x+boxWidth/2, c.y
		fmt.Fprintf(b, `<path d="M%d %d C%d %d %d %d %d %d" fill="none" stroke="%s" stroke-width="%.1f"/>`+"\n", x, y,
			x, y+gapY/2, cx, cy-gapY/2, cx, cy, color(c.n.Q), 1+7*math.Sqrt(float64(c.n.Visits)/most))
		fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", cx, cy-6, html.EscapeString(c.n.Action))
		drawLines(b, c, most)
	}
}

func drawBoxes(b *strings.Builder, p *place) {
	fill := "white"
	if p.n.End {
		fill = "#e4e4e4"
	}
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="%s" stroke="#555"/>`+"\n", p.x, p.y,
		boxWidth, boxHeight, fill)
	middle := p.x + boxWidth/2
	lines := []string{fmt.Sprintf("%d visits", p.n.Visits), fmt.Sprintf("value %+.3f", p.n.Value)}
	if p.n.Action != "" {
		lines = append(lines, fmt.Sprintf("p %.2f q %+.2f", p.n.Prior, p.n.Q))
	}
	for i, text := range lines {
		fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", middle, p.y+14+13*i, text)
	}
	for _, c := range p.children {
		drawBoxes(b, c)
	}
}

// color goes from red at -1 over grey to green at +1.
func color(q float32) string {
	v := math.Max(-1, math.Min(1, float64(q)))
	mix := func(to float64) int { return int(150 + math.Abs(v)*(to-150)) }
	if v < 0 {
		return fmt.Sprintf("rgb(%d,%d,%d)", mix(200), mix(60), mix(60))
	}
	return fmt.Sprintf("rgb(%d,%d,%d)", mix(40), mix(160), mix(70))
}
