import sys

from devtools.commands import main
from devtools.localstack import LocalStack

sys.exit(main(LocalStack))
