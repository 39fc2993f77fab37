// Package search finds the layout of a step: where to cut the chain of layers into stages, and in which
// order each stage works (the schedule). It also predicts the seconds of a step and the bytes of each
// stage.
//
// In: the settings, a table of the layers' costs, a network, and a function for the memory besides the
// layers. Out: layouts, predictions, lower bounds, and for a measured step the causes of idle time.
//
// There are two values. A Problem is what all steps have in common. A Step is a Problem, the costs of
// one step and the layout in which the step runs. Neither changes after it is made, so a call depends on
// these values and its arguments only. For other costs, another layout or another number of stages the
// caller makes another Step. A Step caches a few answers. A Problem caches none, unless its caller gives
// it a Memo.
//
// Invariants: equal inputs give equal layouts, on every rank and in every process. So no result may
// depend on the order of a Go map, on threads or on a clock. Cuts, schedules and layouts that a method
// gets must belong to a map in Problem.Maps. The number of their virtual stages says which map.
//
// Words: a stage holds one or more chunks of the chain. All chunks together, in chain order, are the
// virtual stages. In a V each stage holds two: virtual stages go down the stages and back up (see
// partition.Map). F, I and W are the forward, the backward for inputs and the backward for weights of
// a microbatch. A microbatch is in flight on a virtual stage from its F to its W. A kind of schedule
// is fixed if it follows from the numbers of stages and microbatches alone, such as 1f1b and zb-h2.
// A list schedule ("list") is made for the costs by rules. "auto" takes the fastest of fixed ones and
// lists. The base schedule is the fixed one, or the one before costs are known.
//
// Which prediction to use: Seconds compares layouts; it includes the sums of gradients over replicas.
// Makespan is the step without these sums. Estimate is a faster, less exact Seconds of some cuts.
// Simulate gives everything about one step, with its random delays and differing microbatches. No
// prediction includes the optimizer's update or moves of layers.
//
// Others rely on the following, so do not change it alone. Shape's text is in files of costs. Results
// decide where layers lie, so a change shows in golden files and recorded runs. LeastSeconds must stay
// a bound. Free to change: how BestInMap and Auto search.
package search
