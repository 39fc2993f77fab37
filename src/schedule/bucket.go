package schedule

import "slices"

// shareBytes is the largest share of a bucket that one replica sums, unless one layer alone has
// a larger share. A message of 1 MiB reaches the bandwidth of its link. A bucket is shareBytes
// times the number of replicas: with few replicas buckets are small, and the first sum begins
// soon after the last backward has begun.
const shareBytes = 1 << 20

// BucketBytes returns the largest bucket, in bytes of gradients. A layer that alone has more bytes
// is a bucket too.
func BucketBytes(replicas int) int64 { return int64(replicas) * shareBytes }

// Lookahead is how many buckets may be in flight between their first round of messages and their
// sum. One bucket is added up while the values of the next arrive.
const Lookahead = 2

// Buckets divides layers into buckets. Replicas sum the gradients of a bucket together. A bucket
// has at most `most` bytes, or one layer. summed has the bytes of each layer, in the order in which
// a step completes gradients (see Completed); some may be 0. Buckets returns for each bucket how
// many layers are complete when the bucket is complete.
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

// Completed returns the chunks of a stage in the order in which a step completes their gradients. A
// chunk's last W completes them, because W are in ascending order of microbatches. Chunks without W
// are left out.
func (s Schedule) Completed(stage int) []int {
	var chunks []int // the last one first
	for _, in := range slices.Backward(s.Lists[stage]) {
		if s.Completes(in) {
			if chunks = append(chunks, in.Chunk); len(chunks) == s.Map.Chunks {
				break
			}
		}
	}
	slices.Reverse(chunks)
	return chunks
}

// Completes reports whether an instruction completes the gradients of its chunk.
func (s Schedule) Completes(in Instr) bool {
	return (in.Op == W || in.Op == B) && in.Microbatch == s.Microbatches-1
}
