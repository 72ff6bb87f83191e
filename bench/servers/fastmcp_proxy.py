"""A FastMCP proxy with one shared client. PORT UPSTREAM"""

import asyncio
import sys

from fastmcp import Client
from fastmcp.server import create_proxy


async def main():
    async with Client(sys.argv[2]) as client:
        proxy = create_proxy(client)
        await proxy.run_http_async(
            host="127.0.0.1", port=int(sys.argv[1]), log_level="error", show_banner=False, json_response=True
        )


asyncio.run(main())
