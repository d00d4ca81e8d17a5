// Package tree is the search itself, as a pure state machine: one [Tree] is one row of a batch.
//
//	t.Reset(config, actions)          forget everything
//	t.SetRoot(root)                   prior and value of the root
//	for !t.Done() {
//		leaves := t.Select(...)       walk down to nodes without an evaluation
//		...                           where there is chance: t.Through(leaf, chances)
//		...                           step the simulator, ask the evaluator
//		t.Apply(leaf, evaluation)     expand the node, back its value up
//	}
//	t.Output(...)                     the action and the improved policy
//
// It has no goroutine, clock, I/O or global random numbers: the same calls give the same tree. Node
// i of a tree is the one that simulation i-1 made, as in mctx (but not where chance nodes are passed,
// or in a tree of MaxNodes, which uses numbers again); the caller keeps its states under the same
// numbers. A value belongs to the player to move at its node; an edge carries reward and discount, and
// the discount is -1 where the mover changes and 0 into a terminal node.
//
// The layout: nodes and edges are flat slices without pointers. A node's edges exist from their
// first visit on, side by side; what wasn't visited is one prior a legal action. That an unvisited
// action is chosen only if it has the best prior among the unvisited (they share every other term
// of the score) makes a selection cost the visited edges and not the number of actions.
//
// References: mctx 0.0.71 for every formula of its three policies; Silver et al. 2017 and 2018
// (AlphaZero), Schrittwieser et al. 2020 (MuZero), Danihelka et al. 2022 (Gumbel MuZero), Antonoglou et
// al. 2022 (Stochastic MuZero), Liu et al. 2020 (WU-UCT, for leaves in flight), Wu 2019 (KataGo).
package tree
