package envs

import "github.com/azserve/azserve/internal/vecmath"

// softenChances computes the outcomes' probabilities.
func (g *Table) softenChances() {
	g.chances = make([][]float32, g.m)
	for m := range g.chances {
		p := make([]float32, g.c)
		if len(g.t.ChanceLogits) > 0 {
			p = floats(g.t.ChanceLogits[m])
		}
		vecmath.Softmax(p, p)
		g.chances[m] = p
	}
}

// Decide goes to the afterstate of an action.
func (g *Table) Decide(s *TableState, action int32) Outcome {
	s.From, s.Index = s.Index, int32(g.s)+g.t.Afterstate[s.Index][action]
	s.Factor = 1
	return Outcome{}
}

// Chances is the softmax of chance_logits.
func (g *Table) Chances(s *TableState, chances []float32) {
	clear(chances)
	if m := int(s.Index) - g.s; m >= 0 {
		copy(chances, g.chances[m])
	}
}

// Happen follows the tables from an afterstate.
func (g *Table) Happen(s *TableState, outcome int32) Outcome {
	return g.move(s, s.From, s.Index-int32(g.s), outcome)
}
