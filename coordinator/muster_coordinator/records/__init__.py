"""Record formats: batches, keys and values of `__consumer_offsets` and `__transaction_state`. `decode` reads them."""
