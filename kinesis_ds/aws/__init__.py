"""Everything that knows botocore, aiobotocore or aiohttp: sessions, calls, and what errors mean."""
