package ref

// sumBlock is the elements that SumSquares adds before it adds to the total.
// It is part of the result's definition: every layout of a layer sums alike.
const sumBlock = 4096

// sumSquares returns Σ x², added in float64: in order within blocks of 4096
// elements, then the blocks in order.
func sumSquares[F Float](x []F) float64 {
	var total float64
	for len(x) > 0 {
		n := min(len(x), sumBlock)
		var sum float64
		for _, xi := range x[:n] {
			sum += float64(xi) * float64(xi)
		}
		total += sum
		x = x[n:]
	}
	return total
}
