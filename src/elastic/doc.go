// Package elastic changes which ranks take part in a run. The launched world is the group of all
// ranks that the launcher started. A rank holds no layer once a layout with fewer ranks has no place
// for it.
//
// In come the World of a step (its groups of ranks), the present layout and the next layout. Out
// goes the World of the next layout. A rank that has no place there is Outside: it calls Await and
// waits for an order of rank 0. Rank 0 lets such ranks leave between steps (Releases). In mode slurm
// it then gives their nodes back to the batch system (Scheduler, Job). In mode restart nobody leaves:
// Next says on which nodes the run starts again.
//
// Invariants. Before the first step all ranks agree on one Terms (Agree). Join, World.Resize and
// World.Close are collective (see package comm). Rank 0 calls Releases.Poll between steps, which never
// waits. If the run writes checkpoints, a rank leaves only after a checkpoint that does not need the rank.
//
// Others rely on these, so do not change them alone: in World, rank of Stages = stage and rank of
// Replicas = replica; Base stays open; the JSON of Next, which job scripts read; the bytes that rank 0
// and Await exchange.
//
// Free to change: how Job asks Slurm, and how long ranks wait and retry.
package elastic
