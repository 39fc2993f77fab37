package schedule

// shareBytes is the most gradients that a replica sums of those that are summed together,
// unless a layer alone has more: a MiB, with which a message reaches the bandwidth of its
// link. A bucket is as many times that as there are replicas, so that it is small where they
// are few and the first sum begins soon after the last backward has.
const shareBytes = 1 << 20

// BucketBytes returns the most bytes of gradients that replicas sum together, unless a
// layer alone has more.
func BucketBytes(replicas int) int64 { return int64(replicas) * shareBytes }

// Lookahead is how many buckets are between the beginning of their first round of messages
// and their sum: one is added up while the copies of the next arrive.
const Lookahead = 2

// Buckets divides layers into buckets, whose gradients are summed over replicas together:
// each has at most so many bytes, or one layer. summed is by layer, in the order in which
// a step completes their gradients (see Completed); layers with nothing to sum may be among
// them. Returned is by bucket how many layers are complete once it is.
func Buckets(summed []int64, most int64) []int {
	var ends []int
	bytes := int64(0)
	for i, own := range summed {
		if bytes > 0 && bytes+own > most {
			ends = append(ends, i)
			bytes = 0
		}
		bytes += own
	}
	if bytes > 0 {
		ends = append(ends, len(summed))
	}
	return ends
}

// Completed returns the chunks of a stage in the order in which a step completes their
// gradients: weights are in ascending order of microbatches. Chunks without weights are not
// among them.
func (s Schedule) Completed(stage int) []int {
	var chunks []int
	for _, in := range s.Lists[stage] {
		if s.Completes(in) {
			chunks = append(chunks, in.Chunk)
		}
	}
	return chunks
}

// Completes reports whether an instruction completes the gradients of its chunk.
func (s Schedule) Completes(in Instr) bool {
	return (in.Op == W || in.Op == B) && in.Microbatch == s.Microbatches-1
}
