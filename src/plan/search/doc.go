// Package search finds the layout of a step: the cuts of the chain, the schedule and whether
// they fit the memory. What comes in is settings, costs and a network. What goes out is a
// layout with its predicted step and why its stages wait. The package is pure: equal inputs
// give equal layouts on every rank.
package search
