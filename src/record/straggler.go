package record

import "fmt"

// Straggler is a rank that is slower than the others, by its score (see
// profile.Straggler), or is so no longer.
type Straggler struct {
	Rank  int // of the world
	Host  string
	Score float64
	Over  bool
}

func (s Straggler) String() string {
	if s.Over {
		return fmt.Sprintf("rank %d (host %s) is about as fast as the others again", s.Rank, s.Host)
	}
	return fmt.Sprintf("rank %d (host %s) is a straggler: it takes %.1f times as long as others for the same work", s.Rank, s.Host, 1/s.Score)
}

// stragglers tells of ranks that have become slower than the others, or are so no longer.
func (j *Journal) stragglers(d Done) error {
	for _, s := range d.Stragglers {
		j.observe.Say(fmt.Sprintf("step %d: %v", d.Step, s))
		detail := map[string]any{"rank": s.Rank, "host": s.Host, "score": s.Score}
		if s.Over {
			detail["over"] = true
		}
		if err := j.event(Event{Step: d.Step, Kind: Slow, Detail: detail}); err != nil {
			return err
		}
	}
	return nil
}
