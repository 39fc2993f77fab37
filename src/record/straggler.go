package record

import "fmt"

// Straggler is a rank that became slower than the others, by its score (see
// profile.Straggler), or a rank that recovered.
type Straggler struct {
	Rank  int     `json:"rank"` // of the world
	Host  string  `json:"host"`
	Score float64 `json:"score"`
	Over  bool    `json:"over,omitempty"`
}

func (s Straggler) String() string {
	if s.Over {
		return fmt.Sprintf("rank %d (host %s) recovered", s.Rank, s.Host)
	}
	return fmt.Sprintf("rank %d (host %s) is a straggler: %.1fx slower than the others", s.Rank, s.Host, 1/s.Score)
}

const (
	// stragglerLines is the largest number of straggler changes that the log prints in a row. Ranks
	// that share cores change every few reports during the whole run.
	stragglerLines = 8
	// stragglerPause is the number of steps without a change after which the log prints changes
	// again. It is a hundred reports of profile.Stragglers.
	stragglerPause = 1000
)

// stragglerLog limits the log lines about stragglers. Events are not limited.
type stragglerLog struct{ changes, last int }

// line returns the log line for a change after a step, "" if it is not printed.
func (l *stragglerLog) line(step int, s Straggler) string {
	if step-l.last > stragglerPause {
		l.changes = 0
	}
	l.changes, l.last = l.changes+1, step
	switch {
	case l.changes < stragglerLines:
		return fmt.Sprintf("step %d: %v", step, s)
	case l.changes == stragglerLines:
		return fmt.Sprintf("step %d: %v; stragglers keep changing, as on shared cores: later changes are only in events.jsonl", step, s)
	}
	return ""
}

// stragglers records the ranks that became slower than the others, and the ranks that recovered.
func (j *Journal) stragglers(d Done) {
	for _, s := range d.Stragglers {
		if line := j.slow.line(d.Step, s); line != "" {
			j.observe.Say(line)
		}
		j.detailed(Event{Step: d.Step, Kind: Slow}, s)
	}
}
