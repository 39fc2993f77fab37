// Package policy is the balancer over the steps of a run. The measurement of a step and its layout
// come in. The layout of the next step and the reason go out. Layers move if the gain exceeds the
// noise and the price of moving. A move that made steps slower is undone. A model that has shrunk
// is packed onto fewer stages.
package policy
