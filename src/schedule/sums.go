package schedule

import "dynmo/src/config"

// Sums is how D replicas add up gradients. Each replica owns one of D shares of a bucket. In
// order of replicas, g the gradient of each,
//
//	s_k = ((g_kG + g_kG+1) + …) + g_kG+G-1
//	sum = ((s_0 + s_1) + …)
//
// with G = Group; the last group is shorter where G does not divide D. With Rounded every g
// is rounded to bfloat16 first, also that of the replica that adds. All additions are in the
// type of the gradients. So bits follow from D, G and Rounded, whatever the nodes are.
//
// Groups travel in rounds of messages. In the first round one replica of a group receives the
// group's values of a share and adds them (see Adder). In the second, where there are several
// groups of several replicas, the share's owner receives the sums of the other groups. In the
// last round the owner sends the sum to all others. With rounding the first round moves 2
// bytes for each value and the others 4: a sum is not rounded. The zero Sums rounds nothing
// and has groups of one.
type Sums struct {
	Group   int // replicas whose gradients are added first; 0: 1
	Rounded bool
	// Sliced is set where the owner of a share updates it. Shares are then slices of each layer,
	// of whole slabs of sliceBytes. The last round follows the norm, and moves weights, not sums.
	Sliced bool
	Narrow bool // of Sliced: weights have half the bytes of gradients
}

// sliceBytes is the unit of slices: 4096 gradients of float32 (see model.Layer).
const sliceBytes = 4096 * 4

// SumsOf returns the way of summing that the settings ask for.
func SumsOf(c config.Config) Sums {
	sliced := c.Sharded()
	return Sums{
		Group: c.Comm.SumGroup, Rounded: c.Comm.Sum == "bfloat16", Sliced: sliced,
		Narrow: sliced && c.Device.Kind == "cuda" && c.Device.Precision == "bf16",
	}
}

// size returns how many replicas exchange values in the first round: a group, or all replicas if
// one round is enough.
func (s Sums) size(replicas int) int {
	if s.Group <= 1 || s.Group >= replicas {
		return replicas
	}
	return s.Group
}

// Rounds returns how many rounds of messages come before owners have their sums.
func (s Sums) Rounds(replicas int) int {
	if s.size(replicas) < replicas {
		return 2
	}
	return 1
}

// Groups returns how many groups exchange values in the first round.
func (s Sums) Groups(replicas int) int { return (replicas + s.size(replicas) - 1) / s.size(replicas) }

// Members returns the replicas [lo, hi) of a group.
func (s Sums) Members(group, replicas int) (lo, hi int) {
	lo = group * s.size(replicas)
	return lo, min(lo+s.size(replicas), replicas)
}

// GroupOf returns the group of a replica.
func (s Sums) GroupOf(replica, replicas int) int { return replica / s.size(replicas) }

// Adder returns the replica of a group that adds up the group's values of owner's share. It is the
// replica with the owner's place in its group. So in its own group the owner adds. In a shorter
// last group the place is taken modulo the group's size.
func (s Sums) Adder(owner, group, replicas int) int {
	lo, hi := s.Members(group, replicas)
	return lo + owner%s.size(replicas)%(hi-lo)
}

// adds returns how many shares the replica at a place of a group of n adds up.
func (s Sums) adds(place, n, replicas int) int {
	size := s.size(replicas)
	places := func(owners int) int { return (owners - place + n - 1) / n } // of consecutive owners, counted from a group's first
	return replicas/size*places(size) + max(0, places(replicas%size))
}

// Sent returns the share of a bucket's bytes that a replica sends in a round. Round number Rounds
// is the last: it sends sums, or weights, back.
func (s Sums) Sent(round, replica, replicas int) float64 {
	group := s.GroupOf(replica, replicas)
	lo, hi := s.Members(group, replicas)
	added := s.adds(replica-lo, hi-lo, replicas)
	shares := replicas - added
	switch {
	case round == s.Rounds(replicas):
		shares = replicas - 1
	case round == 1:
		shares = added - 1
	}
	sent := float64(shares) / float64(replicas)
	if round == 0 && s.Rounded || round == s.Rounds(replicas) && s.Narrow {
		sent /= 2
	}
	return sent
}

// Shares returns the share of a bucket's bytes that replica from sends to replica to in a round.
// Summed over all receivers, it equals Sent.
func (s Sums) Shares(round, from, to, replicas int) float64 {
	group, other := s.GroupOf(from, replicas), s.GroupOf(to, replicas)
	switch {
	case from == to:
		return 0
	case round == s.Rounds(replicas) && s.Narrow:
		return 0.5
	case round == s.Rounds(replicas):
		return 1
	case round == 0 && group == other:
		lo, hi := s.Members(group, replicas)
		shares := float64(s.adds(to-lo, hi-lo, replicas))
		if s.Rounded {
			shares /= 2
		}
		return shares
	case round == 1 && group != other && s.Adder(to, group, replicas) == from:
		return 1
	}
	return 0
}

// Next returns one receiver that represents all receivers of a replica in a round. It is the next
// replica in its group, the replica with its place in the next group, or the next of all replicas.
func (s Sums) Next(round, replica, replicas int) int {
	group := s.GroupOf(replica, replicas)
	lo, hi := s.Members(group, replicas)
	switch {
	case round == s.Rounds(replicas):
		return (replica + 1) % replicas
	case round == 0:
		return lo + (replica-lo+1)%(hi-lo)
	}
	return s.Adder(replica, (group+1)%s.Groups(replicas), replicas)
}

// Bytes returns the most memory that a rank needs to sum gradients over replicas: the values
// received for Lookahead buckets, and the rounded values. summed is that of Buckets. A share is
// rounded up to lines of 64 bytes.
func (s Sums) Bytes(summed []int64, replicas int) int64 {
	var largest [Lookahead]int64
	begin := 0
	for i, end := range Buckets(summed, BucketBytes(replicas)) {
		largest[i%Lookahead] = max(largest[i%Lookahead], s.bucketBytes(s.share(summed[begin:end], replicas), replicas))
		begin = end
	}
	sum := int64(0)
	for _, bytes := range largest {
		sum += bytes
	}
	return sum
}

// share returns the largest share of a bucket that a replica owns, in bytes. summed has the bytes
// of the bucket's layers.
func (s Sums) share(summed []int64, replicas int) (bytes int64) {
	const line = 64 // unit of shares, in bytes
	up := func(n, unit int64) int64 { return (n + unit - 1) / unit }
	d := int64(replicas)
	if s.Sliced {
		for _, own := range summed {
			bytes += up(up(own, sliceBytes), d) * sliceBytes
		}
		return bytes
	}
	for _, own := range summed {
		bytes += own
	}
	return up(up(bytes, line), d) * line
}

// bucketBytes returns the most memory of any replica for the sum of a bucket. share is the
// largest number of bytes of the bucket that a replica owns.
func (s Sums) bucketBytes(share int64, replicas int) int64 {
	size := s.size(replicas)
	first := 0 // shares that arrive in the first round
	for _, n := range []int{size, replicas % size} {
		if n > 0 {
			first = max(first, s.adds(0, n, replicas)*(n-1))
		}
	}
	values, rounds := int64(first)*share, int64(s.Groups(replicas)-1)*share
	if s.Rounded {
		values = (values + int64(replicas)*share) / 2
	}
	return values + rounds
}
