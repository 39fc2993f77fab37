// Package balance decides which stage holds which layers. In come the cost of every layer,
// the memory and speed of every stage (a Problem), and for some balancers the present cuts.
// Out go new cuts and their cost (a Result).
//
// Partition is exact. FewestMoves is exact and spares migration. Uniform, Param and Regex
// are the static baselines. Diffusion needs only messages between neighbours.
// DiffusionPaper is the paper's own Algorithm 3: its result can be reported but not
// executed. Trigger says when to balance at all.
//
// Everything here is a pure function of its arguments: ranks that gathered
// the same numbers decide the same. Diffusion is one algorithm over a Link:
// Diffuse is given one that carries messages, Diffusion has all stages in memory.
package balance
