// Package policy decides after every step whether layers move to other stages before the next step.
//
// In: the measurement of a step, the layout of the step, the search.Problem of the run's settings, and
// Options. Out: the layout of the next step, and a Reason, which events.jsonl records. Layers move if
// the predicted gain exceeds the noise and the price of moving. A move that made steps slower is
// undone. A model that has become cheaper is packed onto fewer stages.
//
// Who calls what: rank 0 of the run has the Balancer. After every step it calls Decide, once, and sends
// the answer to the other ranks. If the balancer of the settings is "diffusion", the stages of replica
// 0 exchange messages during Decide. Stage 0 is then in Decide while the other stages of replica 0 are
// in Neighbours.Conclude.
//
// Invariants: a decision depends only on earlier calls and their arguments, and on the errors of
// messages. So simulated runs and resumed runs decide as the run did.
//
// Words: the dense model is the model before any kind of dynamism has changed it. The paper is
// DynMo (see README). Pieces are groups of parameters that replicas divide (see package model).
//
// Others rely on the following, so do not change it alone. The JSON names of Reason, Packing, Placed
// and Reference, and the values of Kept, are in events.jsonl and checkpoints. Free to change: when a
// gain is worth a move, when to look for fewer stages, and the messages among Neighbours.
package policy
