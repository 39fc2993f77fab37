package layout

import "dynmo/src/config"

// OptimizerCanFollow reports whether a move from layout l to next may be done in two parts, in a run
// of settings c. The weights of the moving layers are sent before the next step. Their masters and
// moments (model.Section.ForUpdate) follow while the step computes, because only the update at the
// step's end reads them. The planner also checks that both layouts' layers fit (see
// search.Step.OptimizerCanFollow). This comment is the rule for what follows, for the rooms that
// plan, send and await it.
//
// The move must keep three things:
//
//   - Ranks: a rank that leaves has no next step.
//   - Pieces: migrate.Rest.Regroup reads masters and moments before the step.
//   - The layers themselves: no kind of dynamism may change layers between steps. Pruning, for
//     example, reads masters.
//
// All other readers call train.Rank.settle first: the update, a checkpoint, the next move and the
// end of the run.
//
// No rank waits forever. Masters and moments travel in two rounds: E to earlier stages, then L to
// later stages. On a GPU a round travels only after the earlier rounds of the same rank (see
// comm.Group.Exchange). Every rank begins E, then L, then the rounds of the step:
//
//   - migrate.Rest.Start begins E before the step. A stage that sends nothing to later stages begins
//     L there too.
//   - migrate.Rest.Forwarded begins L on other stages, after their last message of activations.
//   - The rounds of the step are sums of gradients. They begin after the last F of the stage, when
//     the gradients of a layer are complete.
//
// So all ranks have one order of rounds, and the first round that has not ended waits only for
// ranks that have not begun it. For L such a rank is in its passes before the last message of
// activations. These passes wait for messages between neighbours, which never wait for rounds, and
// for no round. So the rank gets to L. The same holds for each round of the step, which a rank
// begins without waiting for later ones.
//
// The argument fails if passes wait for rounds: where replicas have different weights, they exchange
// rows in every pass. Stage s+1 that began L in Start would exchange rows after L. L waits for the
// last F of stage s. In a 1F1B schedule this F waits for a gradient from stage s+1, hence for rows,
// hence for L. So on GPUs such a run moves everything before the step. In host memory a round waits
// for no other round, and the masters and moments may follow.
func (l Layout) OptimizerCanFollow(next Layout, c config.Config) bool {
	passesExchange := c.Device.Kind == "cuda" && c.ReplicasDiffer()
	return next.SameRanks(l) && next.Pieces.Equal(l.Pieces) && !c.Dynamic.ChangesLayers() && !passesExchange
}
