// Package search runs tree search over real simulators, many roots at once.
//
// [Run] is the built-in loop: it splits the rows over threads, and each part goes round by itself:
// select leaves in every tree, step the simulator, evaluate, expand. [Search] is the same loop opened
// up for a caller that evaluates by himself (ask and tell): Select, Expand, Select, ...
//
// A row's result depends on its root state, its seed and the configuration only: not on its batch,
// its place, or the number of threads.
//
// A root that has ended is not searched: its visits, weights and value are 0, and its action is 0.
package search
