"""Generated from api/azserve/v1/*.proto by `make generate`."""
