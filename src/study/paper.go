package study

// PaperBubble returns the paper's equation (1) for the bubble ratio of a static
// model: with g = P²/2 - P,
//
//	(3g + 6P - 2g/P - 8)·T_C + 2g·T_B
//	──────────────────────────────────────────────
//	(3P² - 2P)·T_C + (2P² - 2P)·T_B + P²·T_F
//
// p is P, the workers of the pipeline; forward and backward are T_F and T_B, the
// seconds of a microbatch on all stages together, divided by P; message is T_C,
// what a message to a neighbour takes of the time that nothing hides.
//
// The paper defines S, the stages, and B, the microbatches, and uses neither:
// its ratio knows no microbatches, though more of them shrink every bubble. It
// holds where the paper counts its gaps: equal stages, one for each worker, of
// an "almost zero-bubble" pipeline in which two copies of the model run against
// each other, on an even number of workers, with as many microbatches as
// workers as far as the paper tells.
//
// Departs: on a single worker it returns 0, where the equation is negative.
func PaperBubble(p int, forward, backward, message float64) float64 {
	if p < 2 {
		return 0
	}
	n := float64(p)
	gaps := n*n/2 - n
	idle := (3*gaps+6*n-2*gaps/n-8)*message + 2*gaps*backward
	span := (3*n*n-2*n)*message + (2*n*n-2*n)*backward + n*n*forward
	if span == 0 {
		return 0
	}
	return idle / span
}
