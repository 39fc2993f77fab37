// Package decisions judges the balancer: what comes in is its policy, what goes out
// is how far its cuts are from the best, how often it moves layers for nothing and
// how soon it answers what really changes. What layers truly cost is known, and what
// ranks measure is drawn around it. Runs are simulated; some are made on ranks too,
// which are goroutines, and must decide alike.
package decisions
