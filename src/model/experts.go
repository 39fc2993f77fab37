package model

// Experts are gated MLPs in place of every block's one (Shazeer et al. 2017), of which
// each token takes a few. The zero value has none.
type Experts struct {
	Count, Top int     // experts of a block; those that a token goes to
	Balanced   bool    // assignments are balanced (S-BASE); else a loss balances them
	Auxiliary  float64 // weight of that loss
	Z          float64 // weight of the router's z-loss
	Capacity   float64 // times its fair share that an expert takes of a microbatch's assignments; 0: all
}
