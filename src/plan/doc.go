// Package plan decides what a step should look like: which schedule, which cuts,
// and whether moving layers pays. What comes in is costs, memory and a network;
// what goes out is a plan with its predicted step and why stages wait in it. It
// is pure: equal inputs give equal plans on every rank.
package plan
