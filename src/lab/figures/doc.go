// Package figures draws the figures and tables of a scaling study. Settings, workload files and
// the paper's numbers come in, simulated runs make a Figure, and pictures and tables go out. A
// Figure is kept as JSON, so that drawing it again needs no simulation.
package figures
