package token

// t5File reads a spiece.model: SentencePiece's model of T5 and umT5, whose texts end with EOS.
func t5File(b []byte) (*file, error) {
	m, err := parseSentencePiece(b)
	if err != nil {
		return nil, err
	}
	f, err := m.file()
	if err != nil {
		return nil, err
	}
	f.ends = true
	return f, nil
}
