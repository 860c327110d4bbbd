import sys

from devtools.commands import main
from devtools.kinesis_local import KinesisLocal

sys.exit(main(KinesisLocal))
