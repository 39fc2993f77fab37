// Package worth says after a run what moving layers was worth to it. What comes in is the
// run's recorded costs and layouts, and the planner of its settings. What goes out is the
// simulated seconds of the run with its layouts, with one layout throughout, and with the
// best layouts.
package worth
