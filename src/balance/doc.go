// Package balance decides which stage has which layers. The input is a Problem: the cost of every
// layer, and the memory and speed of every stage. Some balancers also take the present cuts. The
// output is a Result: new cuts and their cost.
//
// Partition is exact. FewestMoves is exact and avoids migration. Uniform, Param and Regex are the
// static baselines. Diffusion needs only messages between neighbours. DiffusionPaper is the paper's
// own Algorithm 3: its result can be reported but not executed. Trigger decides in which steps to
// balance.
//
// Everything here is a pure function of its arguments: ranks with the same numbers make the same
// decision. Diffusion is one algorithm over a Link. Diffuse takes a link that sends messages;
// Diffusion uses a link in memory.
package balance
