// Package study asks what if, without ranks: what comes in is costs and settings,
// what goes out is how long steps, schedules and whole runs would take. It is
// pure.
package study
