// Package verdict judges the nodes of a cluster. In come rows that nodes measured. Out comes a
// finding for each row: whether the device is slow or faulty, and why. A row is compared with a
// reference file and with the same row of the other nodes. The package measures nothing, so the
// same rows always get the same findings.
package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/trace"
)

// Status is how a measurement ended.
type Status string

// States of a measurement. An impossible check is not a failure.
const (
	Measured     Status = "measured"
	Faulty       Status = "faulty"        // the device reports a fault, named in the note
	died         Status = "died"          // the process ended in the check, or after it; the note says which
	TimedOut     Status = "timed out"     // the check did not end within its limit
	Busy         Status = "busy"          // others took cores that the check wanted: its value means nothing
	NotAvailable Status = "not available" // the check cannot be made here; the note says why
	Begun        Status = "begun"         // in records: the check has begun
	Ended        Status = "ended"         // in records: the process has finished its checks
)

// Row is the result of one check on one device of a node.
type Row struct {
	Node   string   `json:"node"`
	Device string   `json:"device"` // "host", "gpu0", …, or "net"
	Model  string   `json:"model"`  // name of the product; rows of one model are peers
	Check  string   `json:"check"`
	Value  float64  `json:"value"` // in Unit, median of the rounds
	Low    float64  `json:"low,omitempty"`
	High   float64  `json:"high,omitempty"` // quartiles of the rounds
	Unit   string   `json:"unit,omitempty"`
	Status Status   `json:"status"`
	Wrong  int      `json:"wrong,omitempty"` // wrong elements of the result
	Note   string   `json:"note,omitempty"`
	Digest string   `json:"digest,omitempty"` // of the bits of a result; equal on equal devices
	Clock  string   `json:"clock,omitempty"`  // Virtual; "" for the wall clock
	Hosts  []string `json:"hosts,omitempty"`  // the busy hosts of a busy row about several nodes
	Small  bool     `json:"small,omitempty"`  // the operands were small, so a rate means nothing
	*Sweep
}

// Virtual is the clock that counts the CPU time of one thread. Its rates are not compared with others.
const Virtual = "virtual"

// Sweep is the part of a row about messages of one length. Value is the microseconds of an allreduce. It
// describes the network and is not judged.
type Sweep struct {
	Bytes     int64   `json:"bytes"`
	Ranks     int     `json:"ranks"`
	Algorithm float64 `json:"algbw_gb_s"` // bytes over seconds
	Bus       float64 `json:"busbw_gb_s"` // Algorithm·2·(ranks-1)/ranks, which can be compared between numbers of ranks
}

// Name returns node, device and check: "node3 gpu0 copy".
func (r Row) Name() string { return r.Node + " " + r.Device + " " + r.Check }

// direction returns 1 if a larger value is better, -1 if a smaller value is better, and 0 if the
// value only describes the device.
func (r Row) direction() int {
	switch r.Unit {
	case "GFLOP/s", "TFLOP/s", "GB/s", "MHz", "links", "lanes", "GPUs":
		return 1
	case "us":
		return -1
	}
	return 0
}

// isRate reports whether the value is a measured speed or time, not what a device tells about itself.
func (r Row) isRate() bool {
	return r.Sweep == nil && (strings.HasSuffix(r.Unit, "FLOP/s") || r.Unit == "GB/s" || r.Unit == "us")
}

// isReport reports whether the row says that a device has found no fault of its own.
func (r Row) isReport() bool { return r.Unit == "" || r.Unit == "errors" || r.Unit == "rows" }

// isCount reports whether the value counts parts of the machine. All these parts must be present.
func (r Row) isCount() bool { return r.Unit == "links" || r.Unit == "lanes" || r.Unit == "GPUs" }

// lack returns the least share of the peers' speed that a slow device lacks.
func (r Row) lack() float64 {
	if strings.HasPrefix(r.Check, "file_") {
		return slowFilesBy
	}
	return slowBy
}

// speed converts the value to a number that is larger for a better device.
func (r Row) speed() float64 {
	if r.direction() < 0 {
		return 1 / r.Value
	}
	return r.Value
}

// State is the verdict of a finding. After healthy, later states are worse.
type State int

// States of a finding.
const (
	unjudged State = iota // description only, or not available
	busy                  // others used the host, so the value cannot be judged
	healthy
	slow
	invalid // wrong elements, whatever the rate
	failed  // a fault, a check that did not end, or a node that did not answer
)

var stateNames = []string{"-", "BUSY", "OK", "SLOW", "INVALID", "FAULTY"}

func (s State) String() string { return stateNames[s] }

// MarshalText returns the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *State) UnmarshalText(text []byte) error {
	i := slices.IndexFunc(stateNames, func(name string) bool { return strings.EqualFold(name, string(text)) }) // older files have "ok"
	if i < 0 {
		return fmt.Errorf("state %q, want one of %s", text, strings.Join(stateNames, ", "))
	}
	*s = State(i)
	return nil
}

// Finding is a row with its verdict.
type Finding struct {
	Row
	State  State   `json:"state"`
	Ratio  float64 `json:"ratio,omitempty"` // speed over the median of the peers; 0 without peers
	Score  float64 `json:"score,omitempty"` // how many spreads of the peers the device is slower
	Reason string  `json:"reason,omitempty"`
}

const (
	// fewestPeers is the least number of nodes for a comparison of peers. In a smaller group two
	// slow nodes can move the median.
	fewestPeers = 5
	// outlier is the least score of a slow device (Leys et al. 2013, Detecting outliers: use
	// absolute deviation around the median, section 4). Suspects are measured again.
	outlier = 2.5
	// slowBy is the least share of the peers' speed that a slow device lacks. It is a floor on the
	// spread: without it one device of a very even partition would always be an outlier. Files have
	// a larger floor, because their rate depends on other users of the file system.
	slowBy, slowFilesBy = 0.2, 0.5
	// normal is the factor from the median of absolute deviations to an estimate of the standard
	// deviation.
	normal = 1.4826
)

// Judge returns a finding for each row, in the order of the rows. It adds one for each expected
// node without a row. reference may be nil.
func Judge(rows []Row, reference *Reference, expected []string) []Finding {
	findings := make([]Finding, len(rows))
	peers := map[[4]string][]int{}
	for i, r := range rows {
		findings[i] = judged(r, reference)
		if r.comparable() {
			key := [4]string{r.class(), r.Model, r.Check, r.Clock}
			peers[key] = append(peers[key], i)
		}
	}
	for _, list := range peers {
		compare(findings, list)
	}
	compareDigests(findings)
	return append(findings, absent(rows, expected)...)
}

// comparable reports whether the row has a speed that can be compared with others.
func (r Row) comparable() bool {
	return r.Status == Measured && r.Sweep == nil && !(r.Small && r.isRate()) && r.Wrong == 0 && r.direction() != 0 && r.Value > 0 && !math.IsInf(r.Value, 0)
}

// judged returns the finding of a row from the row alone and the reference.
func judged(r Row, reference *Reference) Finding {
	f := Finding{Row: r}
	switch {
	case r.Status == Faulty || r.Status == died:
		f.State, f.Reason = failed, r.Note
	case r.Status == TimedOut:
		f.State, f.Reason = failed, "ran out of time"
		if r.Note != "" {
			f.Reason += ": " + r.Note
		}
	case r.Wrong > 0:
		f.State, f.Reason = invalid, fmt.Sprintf("%d elements of the result are wrong", r.Wrong)
	case r.Status == Busy:
		f.State, f.Reason = busy, cmp.Or(r.Note, "the host was busy")
	case r.Status != Measured:
		f.Reason = cmp.Or(r.Note, string(NotAvailable))
	case r.isReport():
		f.State, f.Reason = healthy, r.Note
	default:
		f.State, f.Reason = reference.judge(r)
	}
	return f
}

// typical returns the median and the spread of the speeds of one check. The spread is large enough
// that a slow device lacks at least the share `lack` of the median (see compare).
func typical(speeds []float64, lack float64) (median, spread float64) {
	median = trace.Median(speeds)
	deviations := make([]float64, len(speeds))
	for k, x := range speeds {
		deviations[k] = math.Abs(x - median)
	}
	return median, max(normal*trace.Median(deviations), lack/outlier*median)
}

// compare compares the rows of one check on devices of one model. With the speeds x of all devices,
// their median m and the median d of |x - m|,
//
//	score = (m - x) / max(1.4826·d, lack/outlier·m)
//
// (Leys et al. 2013, with a floor on the spread). A device with a score of at least outlier is
// slow. Rows of fewer than fewestPeers nodes stay as they are.
func compare(findings []Finding, list []int) {
	nodes := map[string]bool{}
	speeds := make([]float64, len(list))
	for k, i := range list {
		nodes[findings[i].Node] = true
		speeds[k] = findings[i].speed()
	}
	if len(nodes) < fewestPeers {
		return
	}
	median, spread := typical(speeds, findings[list[0]].lack())
	for k, i := range list {
		f := &findings[i]
		f.Ratio, f.Score = speeds[k]/median, (median-speeds[k])/spread
		isSlow := f.Score >= outlier
		if f.isCount() {
			isSlow = speeds[k] < median
		}
		switch {
		case isSlow:
			f.State = max(f.State, slow)
			peers := fmt.Sprintf("%.0f %% of the speed of its peers", 100*f.Ratio)
			f.Reason = strings.TrimPrefix(f.Reason+"; "+peers, "; ")
		case f.State == unjudged:
			f.State = healthy
		}
	}
}

// compareDigests finds devices whose results have other bits than those of most devices of their
// model. If only two devices differ, both are named.
func compareDigests(findings []Finding) {
	counts := map[[2]string]map[string]int{}
	key := func(f Finding) [2]string { return [2]string{f.Model, f.Check} }
	for _, f := range findings {
		if f.Digest != "" {
			if counts[key(f)] == nil {
				counts[key(f)] = map[string]int{}
			}
			counts[key(f)][f.Digest]++
		}
	}
	for i := range findings {
		f := &findings[i]
		if f.Digest == "" {
			continue
		}
		same, all := counts[key(*f)][f.Digest], 0
		for _, n := range counts[key(*f)] {
			all += n
		}
		switch {
		case f.State == invalid:
			f.Reason = fmt.Sprintf("%d bursts of products had other bits than the first: silent corruption", f.Wrong)
		case 2*same <= all && all > 1:
			f.State, f.Reason = invalid, fmt.Sprintf("%d of %d equal devices have the bits of this one: silent corruption", same, all)
		default:
			f.State = max(f.State, healthy)
		}
	}
}

// answer is the check of whether a node has any record.
const answer = "answer"

// isAbsent reports whether the finding says that its node did not answer.
func (f Finding) isAbsent() bool { return f.Device == "node" && f.Check == answer }

// absent returns a finding for each expected node without rows.
func absent(rows []Row, expected []string) []Finding {
	var findings []Finding
	for _, node := range expected {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.Node == node }) {
			findings = append(findings, Finding{
				Row:   Row{Node: node, Device: "node", Check: answer, Status: Faulty, Note: "the node did not answer"},
				State: failed, Reason: "the node did not answer",
			})
		}
	}
	return findings
}

// Bad returns the names of the nodes with a finding that is worse than healthy, the worst first.
func Bad(findings []Finding) []string {
	var names []string
	for _, f := range worstFirst(findings) {
		if !slices.Contains(names, f.Node) {
			names = append(names, f.Node)
		}
	}
	return names
}

// worstFirst returns the findings that are worse than healthy, the worst first.
func worstFirst(findings []Finding) []Finding {
	bad := slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.State <= healthy })
	slices.SortFunc(bad, worse)
	return bad
}

// worse compares findings for sorting, the worst first.
func worse(a, b Finding) int {
	return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(b.Score, a.Score), cmp.Compare(a.Node, b.Node),
		cmp.Compare(a.Device, b.Device), cmp.Compare(a.Check, b.Check))
}
