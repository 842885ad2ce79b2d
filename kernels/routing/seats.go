package routing

// Seats are the places of a layer's experts, of which an expert may have several.
type Seats [][]int32 // by expert, in order

// SeatsOf are those where expert at[i] lies at place i.
func SeatsOf(at []int32) (out Seats) {
	for i, e := range at {
		for len(out) <= int(e) {
			out = append(out, nil)
		}
		out[e] = append(out[e], int32(i))
	}
	return out
}

// Of is the place that a token's row goes to for an expert: tokens take turns among an expert's places, by
// their number in the microbatch of a rank.
func (s Seats) Of(expert int32, token int) int32 {
	at := s[expert]
	return at[token%len(at)]
}
