package objective

// How the tokens of a step's answers are weighed: by their answer, so that all answers count alike; all
// tokens alike; or over a constant, so that a long answer counts more and none is divided by its length.
func byAnswer(n int, answers, _, _ float64) float64  { return 1 / (answers * float64(n)) }
func byToken(_ int, _, tokens, _ float64) float64    { return 1 / tokens }
func byMost(_ int, answers, _, most float64) float64 { return 1 / (answers * most) }
