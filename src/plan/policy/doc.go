// Package policy is the balancer over the steps of a run. What comes in is the measurement
// of a step and the layout that it ran in. What goes out is the layout of the next step and
// the reason: layers move if the gain exceeds the noise and the price of moving, a move that
// made steps slower is undone, and a model that has shrunk is packed onto fewer stages.
package policy
