package tree

import "math/bits"

// appendHalving appends sequential halving's schedule (Karnin et al. 2013; Danihelka et al. 2022,
// algorithm 2; mctx's get_sequence_of_considered_visits): simulation i goes to an action with
// exactly the i-th number of visits. It starts from considered actions and ends on two.
func appendHalving(seq []int32, considered, simulations int) []int32 {
	if considered <= 1 {
		for i := range simulations {
			seq = append(seq, int32(i))
		}
		return seq
	}
	rounds := bits.Len(uint(considered - 1)) // ceil(log2)
	visits := make([]int32, considered)
	for k := considered; len(seq) < simulations; k = max(2, k/2) {
		for range max(1, simulations/(rounds*k)) {
			seq = append(seq, visits[:k]...)
			for a := range k {
				visits[a]++
			}
		}
	}
	return seq[:simulations]
}
