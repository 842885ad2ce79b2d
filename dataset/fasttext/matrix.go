package fasttext

import "fmt"

// dense is a matrix as it is.
type dense struct {
	rows, columns int64
	data          []float32
}

func (d *dense) size() (rows, columns int64) { return d.rows, d.columns }

func (d *dense) row(i int32) []float32 { return d.data[int64(i)*d.columns:][:d.columns] }

func (d *dense) addTo(x []float32, i int32) {
	for k, v := range d.row(i) {
		x[k] += v
	}
}

func (d *dense) dot(x []float32, i int32) (sum float32) {
	for k, v := range d.row(i) {
		sum += v * x[k]
	}
	return sum
}

// quantized is a matrix whose rows are codes of parts (arXiv:1612.03651), and codes of their norms.
type quantized struct {
	rows, columns int64
	codes         []byte
	parts         *quantizer
	normCodes     []byte // nil where rows are as they were
	norms         *quantizer
}

// quantizer has 256 centroids for each part of a row.
type quantizer struct {
	dim, parts, width, last int
	centroids               []float32
}

// centroids a part.
const perPart = 256

func (q *quantizer) centroid(part int, code byte) []float32 {
	if part == q.parts-1 {
		return q.centroids[part*perPart*q.width+int(code)*q.last:][:q.last]
	}
	return q.centroids[(part*perPart+int(code))*q.width:][:q.width]
}

func (q *quantized) size() (rows, columns int64) { return q.rows, q.columns }

func (q *quantized) norm(i int32) float32 {
	if q.norms == nil {
		return 1
	}
	return q.norms.centroid(0, q.normCodes[i])[0]
}

func (q *quantized) addTo(x []float32, i int32) {
	norm := q.norm(i)
	for part := range q.parts.parts {
		for k, v := range q.parts.centroid(part, q.codes[int(i)*q.parts.parts+part]) {
			x[part*q.parts.width+k] += norm * v
		}
	}
}

func (q *quantized) dot(x []float32, i int32) (sum float32) {
	for part := range q.parts.parts {
		for k, v := range q.parts.centroid(part, q.codes[int(i)*q.parts.parts+part]) {
			sum += x[part*q.parts.width+k] * v
		}
	}
	return sum * q.norm(i)
}

// matrix reads a matrix.
func (r *reader) matrix(isQuantized bool) (matrix, error) {
	if isQuantized {
		return r.quantized()
	}
	rows, columns := r.long(), r.long()
	if r.err != nil {
		return nil, r.err
	}
	if rows < 0 || columns < 1 || columns > dimMax || rows > r.left/4/columns {
		return nil, fmt.Errorf("%d × %d numbers do not fit the %d bytes that are left; copy it again", rows, columns,
			r.left)
	}
	d := &dense{rows, columns, r.floats(rows * columns)}
	return d, r.err
}

// quantized reads a matrix of codes.
func (r *reader) quantized() (matrix, error) {
	norm := r.byte() == 1
	q := &quantized{rows: r.long(), columns: r.long()}
	size := int64(int32(r.int()))
	if r.err != nil {
		return nil, r.err
	}
	if q.rows < 0 || q.columns < 1 || q.columns > dimMax || size < 0 || size > r.left {
		return nil, fmt.Errorf("%d codes of %d × %d do not fit the file", size, q.rows, q.columns)
	}
	q.codes = r.bytes(size)
	var err error
	if q.parts, err = r.quantizer(int(q.columns)); err != nil {
		return nil, err
	}
	if int64(q.parts.parts)*q.rows != size {
		return nil, fmt.Errorf("it has %d codes for %d rows of %d parts", size, q.rows, q.parts.parts)
	}
	if norm {
		q.normCodes = r.bytes(q.rows)
		if q.norms, err = r.quantizer(1); err != nil {
			return nil, err
		}
	}
	return q, r.err
}

// quantizer reads centroids of rows of dim numbers.
func (r *reader) quantizer(dim int) (*quantizer, error) {
	q := &quantizer{dim: r.int(), parts: r.int(), width: r.int(), last: r.int()}
	if r.err != nil {
		return nil, r.err
	}
	if q.dim != dim || q.parts < 1 || q.width < 1 || q.last < 1 || q.last > q.width ||
		(q.parts-1)*q.width+q.last != dim {
		return nil, fmt.Errorf("its centroids are for %d numbers in %d parts of %d, the last of %d; rows have %d",
			q.dim, q.parts, q.width, q.last, dim)
	}
	q.centroids = r.floats(int64(dim) * perPart)
	return q, r.err
}
