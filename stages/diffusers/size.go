package diffusers

import "encoding/json"

// Size is a value that is a number in some files and a list in others, as sizes of pictures are.
type Size []int

// UnmarshalJSON takes an integer or a list of integers.
func (s *Size) UnmarshalJSON(text []byte) error {
	var one int
	if err := json.Unmarshal(text, &one); err == nil {
		*s = Size{one}
		return nil
	}
	var list []int
	err := json.Unmarshal(text, &list)
	*s = list
	return err
}
