package recordbatch

// MayBeFiller tells from a header alone whether the batch must be looked at by IsFiller: false means that it is none. What
// may be one is small, MaxFiller bytes at most.
func (h Header) MayBeFiller(isProducer func(int64) bool) bool {
	switch {
	case h.Control() || h.Transactional() || h.LastOffsetDelta >= FillerBatchRecords || h.Size() > MaxFiller || !isProducer(h.ProducerID):
		return false
	case h.NumRecords == 0:
		return true
	}
	return h.Filler() || mayBeCleanedFiller(h)
}

// MaxFiller is more than the size of any filler batch: even in a broker's hands, uncompressed and with keys, a record has
// not more than 32 bytes.
const MaxFiller = 512 + 32*FillerBatchRecords
